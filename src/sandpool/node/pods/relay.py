"""Connects the streams of a client with the pipes or the terminal of a process, with back pressure both ways."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from sandpool.base import open_files as descriptors
from sandpool.base.errors import NodeError
from sandpool.node.backend import Streams
from sandpool.node.pods.pipes import Drain, Source, pipe, terminal
from sandpool.node.runtimes.contract import Ended, Stdio, Task


class Ends:
    """The pipes of one command. Theirs are closed once they were passed on; ours are taken, or closed."""

    def __init__(self, *, stdin: bool) -> None:
        self._theirs: list[int] = []
        self._input: int | None = None
        self._outputs: list[int] = []
        try:
            given = [self._make(writes=True) if stdin else None, self._make(writes=False), self._make(writes=False)]
        except OSError as error:
            self.close()
            raise NodeError("OutOfDescriptors", descriptors.told()) from error
        if any(map(descriptors.scarce, self._theirs)):
            self.close()
            raise NodeError("OutOfDescriptors", descriptors.told())
        self.stdio = Stdio(*given)

    def _make(self, *, writes: bool) -> int:
        """A pipe of which they get the other end."""
        reading, writing = pipe()
        if writes:
            self._input = writing
        else:
            self._outputs.append(reading)
        self._theirs.append(reading if writes else writing)
        return self._theirs[-1]

    def passed(self) -> None:
        while self._theirs:
            os.close(self._theirs.pop())

    def take(self) -> tuple[dict[int, Source], Drain | None]:
        """Stdout and stderr by number, and stdin if there is one."""
        outputs, self._outputs = self._outputs, []
        given, self._input = self._input, None
        sources = {stream: Source(fd) for stream, fd in enumerate(outputs, 1)}
        return sources, None if given is None else Drain(given)

    def close(self) -> None:
        self.passed()
        for fd in (*self._outputs, *([] if self._input is None else [self._input])):
            os.close(fd)
        self._outputs, self._input = [], None


async def feed(streams: Streams, drain: Drain, *, close: bool) -> None:
    """Stdin, until one side has enough. `close`: its end is passed on."""
    with suppress(BrokenPipeError):
        while data := await streams.read():
            await drain.write(data)
    if close:
        drain.close()


async def follow_size(streams: Streams, screen: Drain) -> None:
    while True:
        screen.resize(*await streams.resized())


async def copy(source: Source, stream: int, write: Callable[[int, bytes], Awaitable[None]]) -> None:
    while data := await source.read():
        await write(stream, data)


async def converse(task: Task, streams: Streams, ends: Ends | None, linger: float) -> Ended:
    """Until the command has ended and all that it wrote was passed on. Without pipes, by its terminal."""
    loop = asyncio.get_running_loop()
    if ends is None:
        assert task.terminal is not None
        source, drain = terminal(task.terminal)
        sources = {1: source}
        beside = [follow_size(streams, drain), feed(streams, drain, close=False)]  # the first size comes first
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
        await together([copy(source, stream, streams.write) for stream, source in sources.items()], beside, task.ended)
        return task.ended.result()
    finally:
        task.ended.remove_done_callback(ended)
        for timer in timers:
            timer.cancel()
        drain.close()
        for source in sources.values():
            source.close()


async def together(
    work: Sequence[Coroutine[Any, Any, None]],
    beside: Sequence[Coroutine[Any, Any, None]],
    ended: asyncio.Future[Ended],
) -> None:
    """Until all the work is done and the process has ended; what goes on beside ends then. The first failure counts."""
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
