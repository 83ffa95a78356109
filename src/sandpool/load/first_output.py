"""A first command in a sandbox that was just handed out, through the router: until its first byte of output is here.

Connections to the router are shared and kept. Commands at once are bounded; one that waits for its turn is late, and that
is part of what is measured.
"""

from __future__ import annotations

import asyncio

from sandpool.base.clock import Clock
from sandpool.sdk._async.connection import AsyncConnection
from sandpool.sdk._async.data_plane import DataPlane
from sandpool.sdk._async.processes import AsyncCommands
from sandpool.sdk.errors import CommandError

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
