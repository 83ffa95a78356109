"""Pipes and terminals of processes: reads and writes them without blocking the event loop, and connects them to the streams of a client.

There is back pressure both ways: nothing is read before the other side has taken the chunk before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from sandpool.base import open_files as descriptors
from sandpool.base.errors import NodeError
from sandpool.node.backend import Streams
from sandpool.node.runtimes.contract import Ended, Stdio, Task

CHUNK = 1 << 16
_AFTER_THE_END = 1 << 20  # the largest capacity of a pipe: so much output of an ended process may still be in it


class PipeReader:
    """The reading end. Owns its descriptor."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._left: int | None = None  # bytes that are still read after the writer has ended

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
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
                if error.errno != errno.EIO:  # EIO: the other side of a terminal has closed it
                    raise
                return b""
            if self._left is not None:
                self._left -= len(data)
            return data

    def give_up(self) -> None:
        """Reads only what is in the pipe now: its process has ended, and background processes may hold the pipe open forever."""
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


class PipeWriter:
    """The writing end. Owns its descriptor."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None

    async def write(self, data: bytes) -> None:
        """Returns when all data is written. BrokenPipeError if the reader is gone."""
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
        """Sets the window size of a terminal; does nothing to a pipe. The numbers come from a client and are clamped."""
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
    """Read and write end. The mode lets a process of any user reopen its end through /proc: many programs open /dev/stdout by name."""
    ends = os.pipe2(os.O_CLOEXEC)
    os.fchmod(ends[0], 0o666)
    return ends


def terminal(fd: int) -> tuple[PipeReader, PipeWriter]:
    """Reader and writer of a terminal, each with its own descriptor, so that either can be closed first."""
    return PipeReader(fd), PipeWriter(os.dup(fd))


class StdioPipes:
    """The stdio pipes of one process: its ends are closed with `passed` once it has them; ours are handed out by `take`, else closed."""

    def __init__(self, *, stdin: bool, once: bool = False) -> None:
        """`once`: its stdin is closed at some time, so nobody else may hold it open."""
        self._theirs: list[int] = []
        self._input: int | None = None
        self._outputs: list[int] = []
        try:
            given = [self._make(writes=True) if stdin else None, self._make(writes=False), self._make(writes=False)]
        except OSError as error:
            self.close()
            raise NodeError("OutOfDescriptors", descriptors.limit_message()) from error
        if any(map(descriptors.scarce, self._theirs)):
            self.close()
            raise NodeError("OutOfDescriptors", descriptors.limit_message())
        stdin_, stdout, stderr = given
        self.stdio = Stdio(stdin_, stdout, stderr, tuple(self._outputs) if once else self.ours)

    def _make(self, *, writes: bool) -> int:
        """Makes a pipe and returns the end for the process."""
        reading, writing = pipe()
        if writes:
            self._input = writing
        else:
            self._outputs.append(reading)
        self._theirs.append(reading if writes else writing)
        return self._theirs[-1]

    @property
    def ours(self) -> tuple[int, ...]:
        """Our ends: stdout, stderr and, if there is one, stdin."""
        return (*self._outputs, *([] if self._input is None else [self._input]))

    def passed(self) -> None:
        while self._theirs:
            os.close(self._theirs.pop())

    def take(self) -> tuple[dict[int, PipeReader], PipeWriter | None]:
        """Stdout and stderr by number, and stdin if there is one."""
        outputs, self._outputs = self._outputs, []
        given, self._input = self._input, None
        sources = {stream: PipeReader(fd) for stream, fd in enumerate(outputs, 1)}
        return sources, None if given is None else PipeWriter(given)

    def close(self) -> None:
        self.passed()
        for fd in self.ours:
            os.close(fd)
        self._outputs, self._input = [], None


async def feed(streams: Streams, drain: PipeWriter, *, close: bool) -> None:
    """Copies a client's input until either side ends. `close`: also closes the process's stdin."""
    with suppress(BrokenPipeError):
        while data := await streams.read():
            await drain.write(data)
    if close:
        drain.close()


async def follow_size(streams: Streams, screen: PipeWriter) -> None:
    while True:
        screen.resize(*await streams.resized())


async def copy(source: PipeReader, stream: int, write: Callable[[int, bytes], Awaitable[None]]) -> None:
    while data := await source.read():
        await write(stream, data)


async def relay_command(task: Task, streams: Streams, ends: StdioPipes | None, linger: float) -> Ended:
    """Connects client and command until the command has exited and its output was copied. Without pipes, uses its terminal."""
    loop = asyncio.get_running_loop()
    if ends is None:
        assert task.terminal is not None
        source, drain = terminal(task.terminal)
        sources = {1: source}
        beside = [
            follow_size(streams, drain),
            feed(streams, drain, close=False),
        ]  # the initial window size is set before any input
    else:
        sources, stdin = ends.take()
        assert stdin is not None
        drain = stdin
        beside = [feed(streams, drain, close=True)]
    timers: list[asyncio.TimerHandle] = []

    def ended(_: object) -> None:
        timers.extend(loop.call_later(linger, source.give_up) for source in sources.values())

    task.ended.add_done_callback(ended)
    try:
        await run_until_ended(
            [copy(source, stream, streams.write) for stream, source in sources.items()], beside, task.ended
        )
        return task.ended.result()
    finally:
        task.ended.remove_done_callback(ended)
        for timer in timers:
            timer.cancel()
        drain.close()
        for source in sources.values():
            source.close()


async def run_until_ended(
    work: Sequence[Coroutine[Any, Any, None]],
    beside: Sequence[Coroutine[Any, Any, None]],
    ended: asyncio.Future[Ended],
) -> None:
    """Runs until all the work is done and the process has exited; then cancels what runs `beside`. The first failure is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(one) for one in beside]
            tasks = [group.create_task(one) for one in work]
            await asyncio.wait(tasks)
            await asyncio.wait([ended])
            for other in others:
                other.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
