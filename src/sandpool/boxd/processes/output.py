"""The recent output of a process, by position, for any number of readers.

A reader that follows loses nothing: while one is further behind than what is kept, the process is not read from, and so blocks in its own
writes. Without readers only the newest part is kept, and a later reader is told how many bytes are gone.
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
    """So many bytes before the next piece were dropped."""

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
        self.complete = False  # no more output that a reader should wait for

    @property
    def start(self) -> int:
        return self._pieces[0].start if self._pieces else self.end

    @property
    def full(self) -> bool:
        """Whether a reader is so far behind that no more output can be taken."""
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
        """Yields output from a position on: until it is complete, or without `wait` as far as it is now. `gone` stops it; who sets it must
        call `wake`."""
        reader, self._next_reader = self._next_reader, self._next_reader + 1
        wanted = min(max(position, 0), self.end)
        at = max(wanted, self.start)
        self._readers[reader] = at  # before yielding: while the reader is busy, more could be dropped
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
        """The pieces from this position on. The first is cut if a reader resumes in the middle of it."""
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
        """Wakes all readers."""
        self._news.set()
        self._news = asyncio.Event()
