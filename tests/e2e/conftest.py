"""Clusters that tests here start for others start quickly; what documents and examples start is started as they say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.product.forked_commands import prepared


@pytest.fixture(scope="session", autouse=True)
def commands() -> Iterator[None]:
    with prepared():
        yield
