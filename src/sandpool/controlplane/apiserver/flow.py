"""How fast bytes pass on one connection: whether the client keeps up with what is written, and whether it is read."""

from __future__ import annotations

import asyncio


class Flow:
    """`write_paused` while the client leaves too much unread; `drain` waits until it does not."""

    __slots__ = ("_room", "_transport", "read_paused", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._room = asyncio.Event()
        self._room.set()
        self.read_paused = False
        self.write_paused = False

    async def drain(self) -> None:
        await self._room.wait()

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self.write_paused = True
        self._room.clear()

    def resume_writing(self) -> None:
        self.write_paused = False
        self._room.set()
