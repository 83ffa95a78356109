"""What many of these tests share: the command, ready to be run often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.forked_commands import prepared


@pytest.fixture(scope="session", autouse=True)
def commands() -> Iterator[None]:
    with prepared():
        yield
