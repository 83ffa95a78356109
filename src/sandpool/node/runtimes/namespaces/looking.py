"""Looking at a sandbox from outside: what it has on disk, and which processes are in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.namespaces.forked.processes import descendants, listed
from sandpool.node.runtimes.namespaces.server import ForkServer, close

PATIENCE = 600.0  # seconds: there may be very many files


async def measured(server: ForkServer, folders: Sequence[Path]) -> list[tuple[int, int]]:
    message, files = await server.ask({"do": "measure", "folders": [str(path) for path in folders]}, patience=PATIENCE)
    close(files)
    match message.get("used"):
        case [*found] if len(found) == len(folders):
            return [_pair(each) for each in found]
    raise NodeError("ForkServer", "a worker gave an answer that makes no sense")


def _pair(said: object) -> tuple[int, int]:
    match said:
        case [int(size), int(inodes)]:
            return size, inodes
    raise NodeError("ForkServer", "a worker gave an answer that makes no sense")


def descending(leaders: Iterable[int | None]) -> set[int]:
    """These processes and all that descend from them."""
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        everybody = listed(proc)
    finally:
        os.close(proc)
    known = [leader for leader in leaders if leader is not None]
    return {pid for leader in known for pid in (leader, *descendants(everybody, leader))}
