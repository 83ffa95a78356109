"""What a running container writes: into its log, and to those who are attached.

Each stream has one task that reads a little, has it written by a thread, passes it on, and only then reads more. So a container
that writes faster than the disk takes it is slowed by its own pipe, and nobody else is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import partial

from sandpool.base.clock import Clock
from sandpool.node.pods.logs.files import LogWriter
from sandpool.node.pods.logs.growth import Growth
from sandpool.node.pods.logs.record import stamp
from sandpool.node.pods.pipes import Source
from sandpool.node.pods.threads import Threads

HELD = 1 << 18  # bytes for one who is attached and has not read them yet


class Listener:
    """Somebody who is attached."""

    def __init__(self) -> None:
        self._held: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self.over = False
        self.cut = False  # it did not read for too long, and is passed over from then on

    async def put(self, stream: int, data: bytes, patience: float) -> None:
        """Waits while too much is held."""
        while self._size >= HELD and not self.cut and not self.over:
            self._room.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._room.wait()
            except TimeoutError:
                self.cut = True
        if not self.cut and not self.over:
            self._held.append((stream, data))
            self._size += len(data)
        self._news.set()

    async def get(self) -> tuple[int, bytes] | None:
        """None at the end."""
        while not self._held:
            if self.over or self.cut:
                return None
            self._news.clear()
            await self._news.wait()
        stream, data = self._held.popleft()
        self._size -= len(data)
        self._room.set()
        return stream, data

    def end(self) -> None:
        self.over = True
        self._news.set()
        self._room.set()


class Output:
    def __init__(
        self, sources: Mapping[int, Source], writer: LogWriter, clock: Clock, threads: Threads, stall: float
    ) -> None:
        self._sources = sources
        self._writer = writer
        self._clock = clock
        self._threads = threads
        self._stall = stall
        self._listeners: list[Listener] = []
        self.growth = Growth()

    async def run(self) -> None:
        """Until all streams are at their end. The log is whole then."""
        try:
            async with asyncio.TaskGroup() as group:
                for stream, source in self._sources.items():
                    group.create_task(self._pump(stream, source))
            await self._threads.run(partial(self._writer.finish, stamp(self._clock.now())))
        finally:
            for source in self._sources.values():
                source.close()
            for listener in self._listeners:
                listener.end()
            self._writer.close()
            self.growth.end()

    def give_up(self) -> None:
        for source in self._sources.values():
            source.give_up()

    def listen(self) -> Listener:
        listener = Listener()
        if self.growth.over:
            listener.end()
        self._listeners.append(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        listener.end()
        if listener in self._listeners:
            self._listeners.remove(listener)

    @property
    def lost(self) -> int:
        return self._writer.lost

    async def _pump(self, stream: int, source: Source) -> None:
        while data := await source.read():
            await self._threads.run(partial(self._writer.write, stamp(self._clock.now()), stream, data))
            self.growth.grew()
            for listener in tuple(self._listeners):
                await listener.put(stream, data, self._stall)
