"""What many of these tests share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from support.product.forked_commands import prepared


@pytest.fixture(scope="session", autouse=True)
def commands() -> Iterator[None]:
    """The command, ready to be run often."""
    with prepared():
        yield


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What would only go with a cycle stays, and is seen."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
