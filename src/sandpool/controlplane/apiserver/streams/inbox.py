"""What has arrived on one stream and was not read yet. One task feeds it, one reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Inbox:
    """`charge` hears of every byte that comes to be held, and of every one that is not any more: what was read is held by
    its reader until it reads on."""

    def __init__(self, limit: int, charge: Callable[[int], object]) -> None:
        self._limit = limit
        self._charge = charge
        self._held = bytearray()  # one, however small the pieces are that it comes in
        self._lent = 0  # bytes that the reader has and has not passed on yet
        self._ended = False
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    def put(self, data: bytes) -> None:
        """After `end` nothing is kept any more."""
        if self._ended or not data:
            return
        self._held += data
        self._charge(len(data))
        self._filled.set()
        if len(self._held) > self._limit:
            self._emptied.clear()

    def end(self) -> None:
        """Nothing more will come; what is there can still be read."""
        self._ended = True
        self._filled.set()

    def discard(self) -> None:
        """Nobody will read any more."""
        self._take()
        self._give_back()
        self._ended = True
        self._filled.set()

    @property
    def full(self) -> bool:
        return not self._emptied.is_set()

    async def room(self) -> None:
        """Waits until no more is held than should be: whoever feeds waits here before it reads on."""
        await self._emptied.wait()

    async def read(self) -> bytes:
        """All that is there, once there is something; empty at the end."""
        self._give_back()
        while not self._held:
            if self._ended:
                return b""
            self._filled.clear()
            await self._filled.wait()
        return self._take()

    def _take(self) -> bytes:
        data = bytes(self._held)
        self._held.clear()
        self._lent += len(data)
        self._emptied.set()
        return data

    def _give_back(self) -> None:
        lent, self._lent = self._lent, 0
        self._charge(-lent)
