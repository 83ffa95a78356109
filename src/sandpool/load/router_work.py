"""Work inside claimed sandboxes through the router: the first output of a command, and a file written and read back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from sandpool.base.clock import Clock
from sandpool.load.errors import LoadError
from sandpool.load.work import Work
from sandpool.sdk._async.connection import AsyncConnection
from sandpool.sdk._async.data_plane import DataPlane
from sandpool.sdk._async.files import AsyncFiles
from sandpool.sdk._async.processes import AsyncCommands
from sandpool.sdk.config import Config
from sandpool.sdk.errors import CommandError, FileError

AT_ONCE = 512


class _Inside(AsyncCommands):
    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._env = {}


class RouterCommand:
    def __init__(self, connection: AsyncConnection, command: str, clock: Clock, at_once: int = AT_ONCE) -> None:
        self._connection = connection
        self._command = command
        self._clock = clock
        self._turn = asyncio.Semaphore(at_once)

    async def first_output(self, namespace: str, sandbox: str) -> float:
        box = _Inside(DataPlane(self._connection, namespace, sandbox))
        async with self._turn, box.stream(self._command) as stream:
            async for _ in stream:
                return self._clock.monotonic()
        raise CommandError(f"sandbox {namespace}/{sandbox}: {self._command!r} ended without any output")


LARGEST = 64 << 20
MEMORY = 256 << 20
"""Bytes of all files in flight together."""
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
    """Compared while it is read, so that it is not in memory twice."""
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


@asynccontextmanager
async def through_router(config: Config, work: Work, command: str, size: int, clock: Clock) -> AsyncIterator[Work]:
    """The work with a first command, with files of `size` bytes, or with both; empty and 0 stand for none."""
    if not command and not size:
        yield work
        return
    if not config.router:
        raise LoadError(
            f"{'--exec' if command else '--files'} goes through the router and no router is known: the backend hollow has none "
            "(nothing runs in its pods); on Kubernetes name it with --router"
        )
    async with AsyncConnection(config) as connection:
        yield replace(
            work,
            command=RouterCommand(connection, command, clock) if command else None,
            files=RouterFiles(connection, size) if size else None,
        )
