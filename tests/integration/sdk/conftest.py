from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.network.boxd_daemon import Daemon, boxd
from support.network.sdk_box import a_box


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for all tests of a file: each works in a folder of its own."""
    with boxd(tmp_path_factory.mktemp("root")) as found:
        yield found


@pytest.fixture
def home(daemon: Daemon, request: pytest.FixtureRequest) -> Path:
    """A folder in the sandbox."""
    place = daemon.root / "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    place.mkdir()
    return place


@pytest.fixture(params=["async", "sync"])
async def box(request: pytest.FixtureRequest, daemon: Daemon) -> AsyncIterator[Any]:
    async with a_box(request.param, daemon.port) as found:
        yield found
