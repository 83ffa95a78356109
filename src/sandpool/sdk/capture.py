"""Keeps what a command says within a limit: the beginning and the newest part, and how much is missing between them."""

from __future__ import annotations

from collections import deque

from sandpool.sdk.values import Captured

_BLOCK = 64 * 1024


class Capture:
    def __init__(self, limit: int) -> None:
        self._head_limit = limit - limit // 2
        self._tail_limit = limit // 2
        self._block = min(_BLOCK, limit // 16)  # pieces below it share one: each alone would take many times its size
        self._head: deque[bytes | bytearray] = deque()
        self._head_size = 0
        self._tail: deque[bytes | bytearray] = deque()
        self._tail_size = 0
        self._left_out = 0

    def add(self, data: bytes) -> None:
        if not data:
            return  # nothing, said any number of times, takes no room
        room = self._head_limit - self._head_size
        if room > 0:
            self._append(self._head, data[:room])
            self._head_size += min(room, len(data))
            data = data[room:]
        if data:
            self._append(self._tail, data)
            self._tail_size += len(data)
            self._trim()

    def _append(self, blocks: deque[bytes | bytearray], data: bytes) -> None:
        if len(data) >= self._block:
            blocks.append(data)
            return
        last = blocks[-1] if blocks else None
        if isinstance(last, bytearray) and len(last) + len(data) <= self._block:
            last += data
        else:
            blocks.append(bytearray(data))

    def _trim(self) -> None:
        """Whole blocks go first; the oldest that stays is cut only at the end, in `done`."""
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_limit:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._left_out += gone

    def done(self) -> Captured:
        tail = b"".join(self._tail)
        surplus = max(0, len(tail) - self._tail_limit)
        return Captured(b"".join(self._head), tail[surplus:], self._left_out + surplus)
