"""A file of a given size into a sandbox that was just handed out, and back again, through the router: checked byte by byte.

Every sandbox gets other bytes, so that a file of another one would be noticed. How many are under way at once is bounded, and so is
the memory for it; one that waits for its turn is late, and that is part of what is measured.
"""

from __future__ import annotations

import asyncio

from sandpool.sdk._async.connection import AsyncConnection
from sandpool.sdk._async.data_plane import DataPlane
from sandpool.sdk._async.files import AsyncFiles
from sandpool.sdk.errors import FileError

LARGEST = 64 << 20
AT_ONCE = 512
MEMORY = 256 << 20
"""Bytes that all files under way may have together."""
PATH = "sandpool-load.bin"


class RouterFiles:
    def __init__(self, connection: AsyncConnection, size: int) -> None:
        self._connection = connection
        self._size = size
        self._turn = asyncio.Semaphore(at_once(size))

    async def round_trip(self, namespace: str, sandbox: str) -> None:
        files = AsyncFiles(DataPlane(self._connection, namespace, sandbox))
        async with self._turn:
            sent = content(sandbox, self._size)
            await files.write(PATH, sent)
            if not await _comes_back(files, sent):
                raise FileError(f"sandbox {namespace}/{sandbox}: {PATH!r} came back with other bytes", PATH)


async def _comes_back(files: AsyncFiles, sent: bytes) -> bool:
    """Compared as it comes: it is not held twice."""
    place = 0
    async with files.open(PATH) as file:
        async for piece in file:
            if sent[place : place + len(piece)] != piece:
                return False
            place += len(piece)
    return place == len(sent)


def content(sandbox: str, size: int) -> bytes:
    line = f"{sandbox}\n".encode()
    return (line * (size // len(line) + 1))[:size]


def at_once(size: int) -> int:
    return min(AT_ONCE, max(1, MEMORY // size))
