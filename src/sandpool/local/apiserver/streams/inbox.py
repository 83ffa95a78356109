"""What has arrived on one stream and was not read yet. One task feeds it, one reads it."""

from __future__ import annotations

import asyncio


class Inbox:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._chunks: list[bytes] = []
        self._held = 0
        self._ended = False
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    def put(self, data: bytes) -> None:
        """After `end` nothing is kept any more."""
        if self._ended or not data:
            return
        self._chunks.append(data)
        self._held += len(data)
        self._filled.set()
        if self._held > self._limit:
            self._emptied.clear()

    def end(self) -> None:
        """Nothing more will come; what is there can still be read."""
        self._ended = True
        self._filled.set()

    def discard(self) -> None:
        """Nobody will read any more."""
        self._chunks.clear()
        self._held = 0
        self._ended = True
        self._filled.set()
        self._emptied.set()

    @property
    def full(self) -> bool:
        return not self._emptied.is_set()

    async def room(self) -> None:
        """Waits until no more is held than should be: whoever feeds waits here before it reads on."""
        await self._emptied.wait()

    async def read(self) -> bytes:
        """All that is there, once there is something; empty at the end."""
        while not self._chunks:
            if self._ended:
                return b""
            self._filled.clear()
            await self._filled.wait()
        data = self._chunks.pop() if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._held = 0
        self._emptied.set()
        return data
