"""The two ends of pipes and terminals, read and written without blocking the event loop and no faster than the other side."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import struct
import termios

CHUNK = 1 << 16
_AFTER_THE_END = 1 << 20  # the most that a pipe holds: so much may still be of a process that has ended


class Source:
    """What comes out. Owns its descriptor."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._left: int | None = None  # how much more is read, once the writer is known to have ended

    async def read(self) -> bytes:
        """Some bytes; none at the end."""
        while True:
            if self._fd < 0 or self._left == 0:
                return b""
            try:
                data = os.read(self._fd, CHUNK if self._left is None else min(CHUNK, self._left))
            except BlockingIOError:
                if self._left is not None:
                    return b""
                await self._readable()
                continue
            except OSError as error:
                if error.errno != errno.EIO:  # how a terminal ends
                    raise
                return b""
            if self._left is not None:
                self._left -= len(data)
            return data

    def give_up(self) -> None:
        """Reads what is there and no more: its process has ended, and who else holds the pipe open is not waited for."""
        if self._left is None:
            self._left = _AFTER_THE_END
            self._wake()

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._wake()

    async def _readable(self) -> None:
        self._waiter = self._loop.create_future()
        self._loop.add_reader(self._fd, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if self._fd >= 0:
                self._loop.remove_reader(self._fd)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Drain:
    """Where something goes in. Owns its descriptor."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None

    async def write(self, data: bytes) -> None:
        """Returns when all of it was taken. BrokenPipeError when nobody will."""
        rest = memoryview(data)
        while rest:
            if self._fd < 0:
                raise BrokenPipeError
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                await self._writable()
            except OSError as error:
                raise BrokenPipeError from error

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._wake()

    def resize(self, columns: int, rows: int) -> None:
        """If it is a terminal. The numbers come from outside."""
        size = struct.pack("HHHH", *(min(max(1, number), 0xFFFF) for number in (rows, columns)), 0, 0)
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._fd, termios.TIOCSWINSZ, size)

    async def _writable(self) -> None:
        self._waiter = self._loop.create_future()
        self._loop.add_writer(self._fd, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if self._fd >= 0:
                self._loop.remove_writer(self._fd)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def pipe() -> tuple[int, int]:
    """Read and write end. Whoever holds one may open it again by its /proc name, also as another user: many programs write to
    /dev/stdout by name."""
    ends = os.pipe2(os.O_CLOEXEC)
    os.fchmod(ends[0], 0o666)
    return ends


def terminal(fd: int) -> tuple[Source, Drain]:
    """Both ways of a terminal, each with a descriptor of its own: what one has closed, the other never touches."""
    return Source(fd), Drain(os.dup(fd))
