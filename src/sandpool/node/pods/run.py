"""One run of a container: its process, its pipes or terminal, its log, and the clients attached to it.

Each output stream has one task that reads a chunk, has a thread write it to the log, passes it to attached clients, and only then reads
more. So a container that writes faster than the disk is slowed down by its own pipe, and nobody else is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.base.shielded import shielded
from sandpool.node.backend import BackendError, Command, Streams
from sandpool.node.pods.context import RunContext
from sandpool.node.pods.logs.files import Growth, LogWriter
from sandpool.node.pods.logs.record import stamp
from sandpool.node.pods.pipes import (
    PipeReader,
    PipeWriter,
    StdioPipes,
    feed,
    follow_size,
    relay_command,
    run_until_ended,
    terminal,
)
from sandpool.node.pods.threads import Threads
from sandpool.node.runtimes.contract import Container, ContainerPlan, Ended, Sandbox, Stdio, Task
from sandpool.telemetry.log import logger

HELD = 1 << 18  # bytes buffered for an attached client that has not read them yet


class Listener:
    """The output buffered for one attached client."""

    def __init__(self) -> None:
        self._held: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._added = asyncio.Event()
        self._room = asyncio.Event()
        self.over = False
        self.cut = False  # the client read nothing for too long; it gets no more

    async def put(self, stream: int, data: bytes, patience: float) -> None:
        """Buffers a chunk; waits while the buffer is full."""
        while self._size >= HELD and not self.cut and not self.over:
            self._room.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._room.wait()
            except TimeoutError:
                self.cut = True
        if not self.cut and not self.over:
            self._held.append((stream, data))
            self._size += len(data)
        self._added.set()

    async def get(self) -> tuple[int, bytes] | None:
        """The next chunk with the number of its stream; None at the end."""
        while not self._held:
            if self.over or self.cut:
                return None
            self._added.clear()
            await self._added.wait()
        stream, data = self._held.popleft()
        self._size -= len(data)
        self._room.set()
        return stream, data

    def end(self) -> None:
        self.over = True
        self._added.set()
        self._room.set()


class Output:
    def __init__(
        self, sources: Mapping[int, PipeReader], writer: LogWriter, clock: Clock, threads: Threads, stall: float
    ) -> None:
        self._sources = sources
        self._writer = writer
        self._clock = clock
        self._threads = threads
        self._stall = stall
        self._listeners: list[Listener] = []
        self.growth = Growth()

    async def run(self) -> None:
        """Copies until all streams have ended; the log is complete then."""
        try:
            async with asyncio.TaskGroup() as group:
                for stream, source in self._sources.items():
                    group.create_task(self._pump(stream, source))
            await self._threads.run(partial(self._writer.finish, stamp(self._clock.now())))
        finally:
            for source in self._sources.values():
                source.close()
            for listener in self._listeners:
                listener.end()
            self._writer.close()
            self.growth.end()

    def give_up(self) -> None:
        for source in self._sources.values():
            source.give_up()

    def listen(self) -> Listener:
        listener = Listener()
        if self.growth.over:
            listener.end()
        self._listeners.append(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        listener.end()
        if listener in self._listeners:
            self._listeners.remove(listener)

    @property
    def lost(self) -> int:
        return self._writer.lost

    async def _pump(self, stream: int, source: PipeReader) -> None:
        while data := await source.read():
            await self._threads.run(partial(self._writer.write, stamp(self._clock.now()), stream, data))
            self.growth.grew()
            for listener in tuple(self._listeners):
                await listener.put(stream, data, self._stall)


log = logger(__name__)


class Run:
    """Created by `start_run`. Await `finished` last: then the log is complete and all files are closed."""

    def __init__(
        self,
        container: Container,
        output: Output,
        drain: PipeWriter | None,
        context: RunContext,
        *,
        stdin: bool,
        once: bool,
    ) -> None:
        self.container = container
        self.output = output
        self._drain = drain  # also for a terminal without stdin, to resize it
        self._stdin = stdin
        self._once = once
        self._context = context
        self._pumping = asyncio.create_task(output.run())

    async def finished(self) -> Ended:
        ended = await asyncio.shield(self.container.ended)
        timer = asyncio.get_running_loop().call_later(self._context.options.linger, self.output.give_up)
        try:
            await asyncio.wait([self._pumping])
            if not self._pumping.cancelled() and (error := self._pumping.exception()) is not None:
                log.error("output of a container not logged completely", exc=error)
        finally:
            timer.cancel()
            self._close()
        return ended

    async def abandon(self) -> None:
        """Closes all files, whatever the state of the process."""
        self._pumping.cancel()
        await asyncio.gather(self._pumping, return_exceptions=True)
        self._close()

    def _close(self) -> None:
        if self._drain is not None:
            self._drain.close()

    async def attach(self, streams: Streams) -> Ended:
        listener = self.output.listen()
        beside = []
        if self._drain is not None:
            screen = self.container.terminal is not None
            beside += [follow_size(streams, self._drain)] if screen else []
            beside += [feed(streams, self._drain, close=self._once and not screen)] if self._stdin else []
        try:
            await run_until_ended([_pass_on(listener, streams)], beside, self.container.ended)
        finally:
            self.output.leave(listener)
        return self.container.ended.result()

    async def exec(self, command: Command, streams: Streams) -> Ended:
        ends = None if command.tty else StdioPipes(stdin=True)
        task: Task | None = None

        async def start() -> None:
            nonlocal task
            task = await self.container.exec(command, Stdio() if ends is None else ends.stdio)

        try:
            try:
                await shielded(start())
            finally:
                if ends is not None:
                    ends.passed()
            assert task is not None
            return await relay_command(task, streams, ends, self._context.options.linger)
        except BaseException:
            if task is not None:
                await shielded(_end(task))
            raise
        finally:
            if ends is not None:
                ends.close()


async def _end(task: Task) -> None:
    with suppress(NodeError):
        await task.kill()
    await asyncio.wait([task.ended], timeout=5)


async def _pass_on(listener: Listener, streams: Streams) -> None:
    while (found := await listener.get()) is not None:
        await streams.write(*found)
    if listener.cut:
        raise BackendError("SlowReader", "the output was not read for too long; attach again, or read the logs")


async def start_run(
    sandbox: Sandbox, plan: ContainerPlan, writer: LogWriter, context: RunContext, *, stdin: bool, once: bool
) -> Run:
    """Starts the container's command. NodeError if it cannot be started; then nothing of it is left."""
    ends: StdioPipes | None = None
    try:
        ends = None if plan.tty else StdioPipes(stdin=stdin, once=once)
        container = await sandbox.start(plan, Stdio() if ends is None else ends.stdio)
        if ends is not None:
            ends.passed()
            sources, drain = ends.take()
        elif container.terminal is not None:
            source, drain = terminal(container.terminal)
            sources = {1: source}
        else:
            await container.kill()
            raise NodeError("CreateContainerError", f"container {plan.name}: the runtime returned no terminal")
    except BaseException:
        writer.close()
        raise
    finally:
        if ends is not None:
            ends.close()
    return _run(container, sources, drain, writer, context, stdin=stdin, once=once)


def resume_run(
    container: Container, files: Sequence[int], writer: LogWriter, context: RunContext, *, stdin: bool, once: bool
) -> Run:
    """Continues a run that an earlier process started. `files` are its `StdioPipes.ours`; a container with a terminal has none."""
    if container.terminal is not None:
        source, drain = terminal(container.terminal)
        return _run(container, {1: source}, drain, writer, context, stdin=stdin, once=once)
    sources = {stream: PipeReader(fd) for stream, fd in enumerate(files[:2], 1)}
    return _run(
        container, sources, PipeWriter(files[2]) if len(files) > 2 else None, writer, context, stdin=stdin, once=once
    )


def _run(
    container: Container, sources: Mapping[int, PipeReader], drain: PipeWriter | None, writer: LogWriter, context: RunContext,
    *, stdin: bool, once: bool,
) -> Run:  # fmt: skip
    output = Output(sources, writer, context.clock, context.log_threads, context.options.stall)
    return Run(container, output, drain, context, stdin=stdin, once=once)
