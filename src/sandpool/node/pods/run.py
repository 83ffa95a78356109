"""One run of a container: its process, its pipes or terminal, its log, and those who are attached to it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.node.backend import BackendError, Command, Streams
from sandpool.node.pods.logs.files import LogWriter
from sandpool.node.pods.options import PodsOptions
from sandpool.node.pods.output import Listener, Output
from sandpool.node.pods.pipes import Drain, terminal
from sandpool.node.pods.relay import Ends, converse, feed, follow_size, together
from sandpool.node.pods.threads import Threads, unbroken
from sandpool.node.runtimes.contract import Container, ContainerPlan, Ended, ExecPlan, Sandbox, Stdio, Task
from sandpool.telemetry.log import logger

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Around:
    """What all runs of this backend share. Logs have threads of their own: however long a removal takes, they are written."""

    clock: Clock
    threads: Threads
    log_threads: Threads
    options: PodsOptions


class Run:
    """Made by `begin`. `finished` is the last thing to await: then its log is whole and no file of it is open."""

    def __init__(
        self, container: Container, output: Output, drain: Drain | None, around: Around, *, stdin: bool, once: bool
    ) -> None:
        self.container = container
        self.output = output
        self._drain = drain  # also of a terminal that nobody may write to: it can be resized
        self._stdin = stdin
        self._once = once
        self._around = around
        self._pumping = asyncio.create_task(output.run())

    async def finished(self) -> Ended:
        ended = await asyncio.shield(self.container.ended)
        timer = asyncio.get_running_loop().call_later(self._around.options.linger, self.output.give_up)
        try:
            await asyncio.wait([self._pumping])
            if not self._pumping.cancelled() and (error := self._pumping.exception()) is not None:
                log.error("a container's output was not logged to its end", exc=error)
        finally:
            timer.cancel()
            self._close()
        return ended

    async def abandon(self) -> None:
        """Closes all that is open, whatever became of the process."""
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
            await together([_pass_on(listener, streams)], beside, self.container.ended)
        finally:
            self.output.leave(listener)
        return self.container.ended.result()

    async def exec(self, command: Command, streams: Streams) -> Ended:
        plan = ExecPlan(command.argv, command.env, command.cwd, command.tty)
        ends = None if command.tty else Ends(stdin=True)
        task: Task | None = None

        async def start() -> None:
            nonlocal task
            task = await self.container.exec(plan, Stdio() if ends is None else ends.stdio)

        try:
            try:
                await unbroken(start())
            finally:
                if ends is not None:
                    ends.passed()
            assert task is not None
            return await converse(task, streams, ends, self._around.options.linger)
        except BaseException:
            if task is not None:
                await unbroken(_end(task))
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


async def begin(
    sandbox: Sandbox, plan: ContainerPlan, writer: LogWriter, around: Around, *, stdin: bool, once: bool
) -> Run:
    """Starts the container's command. NodeError if it cannot be started; nothing of it is left then."""
    ends: Ends | None = None
    try:
        ends = None if plan.tty else Ends(stdin=stdin)
        container = await sandbox.start(plan, Stdio() if ends is None else ends.stdio)
        if ends is not None:
            ends.passed()
            sources, drain = ends.take()
        elif container.terminal is not None:
            source, drain = terminal(container.terminal)
            sources = {1: source}
        else:
            await container.kill()
            raise NodeError("CreateContainerError", f"container {plan.name}: the runtime has given it no terminal")
    except BaseException:
        writer.close()
        raise
    finally:
        if ends is not None:
            ends.close()
    output = Output(sources, writer, around.clock, around.log_threads, around.options.stall)
    return Run(container, output, drain, around, stdin=stdin, once=once)
