"""A command with a client at its other end, whatever wire is between them.

While it runs, three things go on: the client is read, the command works, and somebody looks whether the client is still there.
Whichever ends first ends the others: a client that leaves ends its command, a command that ends says so and closes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from sandpool.base.errors import NodeError
from sandpool.controlplane.apiserver.streams import status
from sandpool.controlplane.apiserver.streams.limits import StreamLimits
from sandpool.controlplane.apiserver.streams.options import CommandOptions
from sandpool.controlplane.apiserver.streams.pipe import Gone, Pipe
from sandpool.controlplane.apiserver.streams.port import Streams
from sandpool.telemetry.log import logger

log = logger(__name__)

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
MOST_SIZE: Final = 4096  # bytes of one terminal size


class Line(Protocol):
    """One client, by whichever protocol. `stdin` and `resize` are empty at their end."""

    async def pump(self) -> None:
        """Reads the client until it leaves."""
        ...

    async def ready(self) -> None:
        """Waits until the client has opened what it needs. NodeError if it does not in time."""
        ...

    async def stdin(self) -> bytes: ...

    async def resize(self) -> bytes: ...

    async def write(self, stream: int, data: bytes) -> None:
        """Gone if nobody reads that any more."""
        ...

    async def finish(self, outcome: Mapping[str, Any]) -> None:
        """Tells how it ended and says goodbye. Nothing that still arrives is kept."""
        ...

    async def sign_of_life(self) -> None: ...


Run = Callable[[Streams], Awaitable[Mapping[str, Any]]]
"""Runs the command and says how it ended, as a Status."""


class Remote:
    """The Streams of a command: what the client has asked for is connected, the rest leads nowhere."""

    def __init__(self, line: Line, options: CommandOptions, *, lasting: bool) -> None:
        self._line = line
        self._options = options
        # Without stdin a command sees its end at once. What goes on without us (a container, a terminal) must not.
        self._endless = lasting or options.tty
        self._sizes = bytearray()

    async def read(self) -> bytes:
        if self._options.stdin:
            return await self._line.stdin()
        if self._endless:
            await _for_ever()
        return b""

    async def write(self, stream: int, data: bytes) -> None:
        if stream == STDERR and self._options.tty:
            stream = STDOUT
        if self._options.stdout if stream == STDOUT else self._options.stderr:
            try:
                await self._line.write(stream, data)
            except Gone:
                pass  # whoever reads the client notices, and ends the command

    async def resized(self) -> tuple[int, int]:
        while self._options.tty and (data := await self._line.resize()):
            self._sizes += data
            if size := newest_size(self._sizes):
                return size
        await _for_ever()
        raise AssertionError


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def newest_size(text: bytearray) -> tuple[int, int] | None:
    """The last whole `{"Width": 80, "Height": 24}` in what has arrived, which is taken away. What is no size is skipped."""
    found = None
    while (end := text.find(b"}")) >= 0:
        try:
            size = json.loads(text[: end + 1])
            width, height = size["Width"], size["Height"]
        except (ValueError, KeyError, TypeError, RecursionError):
            width = height = None
        if type(width) is int and type(height) is int and 0 < width < 65536 and 0 < height < 65536:
            found = (width, height)
        del text[: end + 1]
    if len(text) > MOST_SIZE:
        text.clear()
    return found


async def serve_command(line: Line, pipe: Pipe, limits: StreamLimits, streams: Streams, run: Run) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            pump = tasks.create_task(line.pump())
            watch = tasks.create_task(watch_over(line.sign_of_life, pipe, limits))
            work = tasks.create_task(_work(line, streams, run))
            await asyncio.wait({pump, watch, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not pump.done():
                await asyncio.wait({pump}, timeout=limits.linger)
            for task in (pump, watch, work):
                task.cancel()
    finally:
        pipe.hang_up()


async def _work(line: Line, streams: Streams, run: Run) -> None:
    try:
        await line.ready()
        outcome = await run(streams)
    except NodeError as error:
        outcome = status.of_failure(error.message)
    except Gone:
        return
    except Exception as error:
        log.error("a command's streams failed", exc=error)
        outcome = status.of_failure("the server's log says more")
    try:
        await line.finish(outcome)
    except Gone:
        pass


async def watch_over(sign_of_life: Callable[[], Awaitable[None]], pipe: Pipe, limits: StreamLimits) -> None:
    """Returns when the client has left, or no byte has passed for very long. Until then the client hears now and then that we
    are here."""
    loop = asyncio.get_running_loop()
    while (left := pipe.stirred + limits.idle - loop.time()) > 0:
        try:
            async with asyncio.timeout(min(limits.quiet, left)):
                await pipe.gone()
            return
        except TimeoutError:
            if pipe.hung_up():
                return
        try:
            await sign_of_life()
        except Gone:
            return
