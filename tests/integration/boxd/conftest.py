from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.network.boxd_daemon import Daemon, boxd


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Daemon]:
    with boxd(tmp_path) as daemon:
        yield daemon
