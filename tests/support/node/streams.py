"""The other end of a command, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class TestStreams:
    """Stdin is what was fed, until it is ended; output is kept by stream. `gate`, while it is clear, lets nothing out."""

    __test__ = False

    def __init__(self, stdin: bytes | None = b"") -> None:
        """`None`: stdin stays open until `end` is called."""
        self._stdin: asyncio.Queue[bytes] = asyncio.Queue()
        if stdin:
            self.feed(stdin)
        if stdin is not None:
            self.end()
        self._sizes: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        self.out = {1: bytearray(), 2: bytearray()}
        self.gate = asyncio.Event()
        self.gate.set()
        self._news = asyncio.Event()

    def feed(self, data: bytes) -> None:
        self._stdin.put_nowait(data)

    def end(self) -> None:
        self._stdin.put_nowait(b"")

    def resize(self, columns: int, rows: int) -> None:
        self._sizes.put_nowait((columns, rows))

    async def read(self) -> bytes:
        data = await self._stdin.get()
        if not data:
            self._stdin.put_nowait(b"")  # an end stays an end
        return data

    async def write(self, stream: int, data: bytes) -> None:
        await self.gate.wait()
        self.out[stream] += data
        self._news.set()

    async def resized(self) -> tuple[int, int]:
        return await self._sizes.get()

    @property
    def text(self) -> bytes:
        return bytes(self.out[1])

    async def until(self, condition: Callable[[bytes], bool]) -> None:
        """Waits until stdout is like that."""
        async with asyncio.timeout(30):
            while not condition(self.text):
                self._news.clear()
                await self._news.wait()
