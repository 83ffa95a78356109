"""What a process has said lately, by position, for any number of readers.

Nobody who follows loses anything: while a reader is further behind than what is kept, the process is not read from, and so
waits in its own writes. Without readers only the newest part stays, and a later reader is told how much is gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

from sandpool.wire.frames import Kind


class Piece(NamedTuple):
    start: int
    kind: Kind  # STDOUT or STDERR
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class Lost(NamedTuple):
    """So many bytes before the next piece are not kept any more."""

    size: int


class Output:
    def __init__(self, keep: int, resume: Callable[[], object] = lambda: None) -> None:
        self._keep = keep
        self._resume = resume
        self._pieces: deque[Piece] = deque()
        self._readers: dict[int, int] = {}  # position of each
        self._next_reader = 0
        self._news = asyncio.Event()
        self.end = 0
        self.complete = False  # nothing that a reader should wait for will follow

    @property
    def start(self) -> int:
        return self._pieces[0].start if self._pieces else self.end

    @property
    def full(self) -> bool:
        """A reader is so far behind that nothing more can be taken."""
        return bool(self._readers) and self.end - min(self._readers.values()) >= self._keep

    def add(self, kind: Kind, data: bytes) -> None:
        if not data:
            return
        self._pieces.append(Piece(self.end, kind, data))
        self.end += len(data)
        needed = min(self._readers.values(), default=self.end)
        while self._pieces and self._pieces[0].end <= min(needed, self.end - self._keep):
            self._pieces.popleft()
        self.wake()

    def finish(self) -> None:
        self.complete = True
        self.wake()

    async def follow(
        self, position: int, *, wait: bool = True, gone: asyncio.Event | None = None
    ) -> AsyncGenerator[Piece | Lost, None]:
        """From there on, until it is complete, or as far as it is now. `gone` cuts it off; whoever sets it calls `wake`."""
        reader, self._next_reader = self._next_reader, self._next_reader + 1
        wanted = min(max(position, 0), self.end)
        at = max(wanted, self.start)
        self._readers[reader] = at  # before anything is given: while the reader is busy, more could go
        try:
            if at > wanted:
                yield Lost(at - wanted)
            while True:
                for piece in self._from(at):
                    yield piece
                    at = piece.end
                    self._advance(reader, at)
                if at == self.end:
                    if self.complete or not wait:
                        return
                    if gone is not None and gone.is_set():
                        raise ConnectionResetError("the client hung up")
                    await self._news.wait()
        finally:
            del self._readers[reader]
            self._resume()

    def _from(self, position: int) -> list[Piece]:
        """What is there from this position; it begins inside a piece only where a reader came back in the middle of one."""
        found: list[Piece] = []
        for piece in reversed(self._pieces):
            if piece.end <= position:
                break
            found.append(piece)
        found.reverse()
        if found and found[0].start < position:
            first = found[0]
            found[0] = Piece(position, first.kind, first.data[position - first.start :])
        return found

    def _advance(self, reader: int, at: int) -> None:
        was_full = self.full
        self._readers[reader] = at
        if was_full and not self.full:
            self._resume()

    def wake(self) -> None:
        """Lets all readers look again."""
        self._news.set()
        self._news = asyncio.Event()
