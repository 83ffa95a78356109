"""One process: its input, output, signals and exit."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sandpool.boxd.processes.memory import MemoryKills
from sandpool.boxd.processes.output import Output
from sandpool.boxd.processes.process_tree import end_tree
from sandpool.boxd.processes.spawn import Spawned, resize
from sandpool.boxd.processes.spec import Size, Spec
from sandpool.boxd.ready import writable
from sandpool.wire.codes import Code, Refused
from sandpool.wire.frames import Kind

_PIECE = 64 * 1024
MOST_WRITERS = 256
LONGEST_NAME = 64
KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True, slots=True)
class Exit:
    code: int  # 128 + signal if a signal ended it
    signal: int = 0
    timed_out: bool = False
    out_of_memory: bool = False

    def value(self) -> dict[str, Any]:
        value = {"code": self.code, "signal": self.signal, "timedOut": self.timed_out}
        return {**value, "outOfMemory": True} if self.out_of_memory else value


class Process:
    def __init__(self, id: str, spec: Spec, spawned: Spawned, kills: MemoryKills) -> None:
        self.id = id
        self.spec = spec
        self.pid = spawned.pid
        self.started = time.time()
        self.output = Output(spec.keep, self._read_on)
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._spawned = spawned
        self._stdin = spawned.stdin
        self.taken = 0  # bytes of stdin written to its pipe
        self._writers: dict[str, int] = {}  # bytes received from each named writer
        self._open = {spawned.stdout: Kind.STDOUT} | (
            {spawned.stderr: Kind.STDERR} if spawned.stderr is not None else {}
        )
        self._reading: set[int] = set()
        self._room = asyncio.Event()
        self._feeding = asyncio.Lock()
        self._timed_out = False
        self._waited_for = False  # after waitpid: the pid may be reused
        self._killed = False  # by a request of a client
        self._kills = kills
        self._kills_before = kills.mark()
        self._deadline: asyncio.TimerHandle | None = None
        self._read_on()
        self._await_end()

    # Output

    def _read_on(self) -> None:
        if self.output.full:
            return
        self._room.set()
        loop = asyncio.get_running_loop()
        for file in self._open.keys() - self._reading:
            self._reading.add(file)
            loop.add_reader(file, self._readable, file)

    def _readable(self, file: int) -> None:
        self._take(file)
        if self.output.full:
            for other in tuple(self._reading):
                self._rest(other)

    def _take(self, file: int) -> bool:
        """Reads some output; whether there was any."""
        try:
            data = os.read(file, _PIECE)
        except BlockingIOError:
            return False
        except OSError:  # EIO: the other side of the terminal is closed
            data = b""
        if data:
            self.output.add(self._open[file], data)
            return True
        self._rest(file)
        del self._open[file]
        if file != self._stdin:
            os.close(file)
        else:
            self._close_stdin()
        return False

    def _rest(self, file: int) -> None:
        if file in self._reading:
            self._reading.discard(file)
            asyncio.get_running_loop().remove_reader(file)

    # Exit

    def _await_end(self) -> None:
        loop = asyncio.get_running_loop()
        if self.spec.timeout is not None:
            self._deadline = loop.call_later(self.spec.timeout, self._expire)
        try:
            watched = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            loop.run_in_executor(None, self._spawned.wait).add_done_callback(lambda _: self._end())
            return

        def ended() -> None:
            loop.remove_reader(watched)
            os.close(watched)
            self._end()

        loop.add_reader(watched, ended)

    def _expire(self) -> None:
        self._timed_out = True
        self.end()

    def _end(self) -> None:
        """Reads the output before the exit first. Does not wait for a child left behind, which may hold the pipes forever."""
        if self._deadline is not None:
            self._deadline.cancel()
        status = self._spawned.wait()
        self._waited_for = True
        number = -status if status < 0 else 0
        code = 128 + number if number else status
        # A shell whose command was killed exits by itself with the same code.
        by_us = self._killed or self._timed_out
        oom = code == KILLED and not by_us and self._kills.ended(self._kills_before)
        end = Exit(code, number, self._timed_out, oom)
        task = asyncio.get_running_loop().create_task(self._finish(end))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _finish(self, end: Exit) -> None:
        for file in tuple(self._open):
            while file in self._open:
                if self.output.full:  # a slow reader still gets what is in the pipe
                    self._room.clear()
                    await self._room.wait()
                elif not self._take(file):
                    break
        self.ended.set_result(end)
        self.output.finish()
        if self.spec.terminal is None:
            self._close_stdin()

    def signal(self, number: int) -> None:
        """Signals the process group, whether or not the process itself has ended."""
        self._killed = self._killed or number == signal.SIGKILL
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def end(self) -> None:
        """Kills it with everything it has started, also processes that left its group or were orphaned."""
        end_tree(0 if self._waited_for else self.pid, self._spawned.mark)
        self.signal(signal.SIGKILL)

    # Input

    async def feed(self, data: bytes | memoryview, writer: str = "", at: int = 0) -> None:
        """Returns when all data is in the pipe: a program that does not read makes the writer wait. A named writer that sends the offset
        of its data may send it again if it does not know how much arrived: no byte is taken twice."""
        async with self._feeding:
            rest = memoryview(data)[self._known(writer, at) - at if writer else 0 :]
            while rest:
                if self._stdin is None:
                    raise Refused(Code.CONFLICT, f"process {self.id} takes no more input")
                try:
                    written = os.write(self._stdin, rest[:_PIECE])
                    self.taken += written
                    rest = rest[written:]
                    if writer:
                        self._writers[writer] += written
                except BlockingIOError:
                    await self._writable(self._stdin)
                except OSError:  # the reading end is closed
                    self._close_stdin()

    def _known(self, writer: str, at: int) -> int:
        """Bytes received from this writer, which becomes the newest."""
        known = self._writers.pop(writer, 0)
        if len(writer) > LONGEST_NAME:
            raise Refused(Code.INVALID, f"a writer's name is longer than {LONGEST_NAME} characters")
        self._writers[writer] = known
        if len(self._writers) > MOST_WRITERS:
            del self._writers[next(iter(self._writers))]
        if at > known:
            raise Refused(Code.CONFLICT, f"process {self.id} has {known} bytes from this writer, not yet {at}")
        return known

    async def _writable(self, file: int) -> None:
        """Waits until stdin is writable or the process has ended."""
        room = asyncio.ensure_future(writable(file))
        await asyncio.wait((room, self.ended), return_when=asyncio.FIRST_COMPLETED)
        if not room.done():
            room.cancel()
            self._close_stdin()

    async def end_input(self) -> None:
        """Closes stdin; to a terminal, sends the EOF character."""
        if self.spec.terminal is not None:
            with suppress(Refused):
                await self.feed(b"\x04")
            return
        async with self._feeding:
            self._close_stdin()

    def _close_stdin(self) -> None:
        file, self._stdin = self._stdin, None
        if file is None or file in self._open:
            return
        asyncio.get_running_loop().remove_writer(file)
        os.close(file)

    def resize(self, size: Size) -> None:
        if self.spec.terminal is None or self._spawned.stdout not in self._open:
            raise Refused(Code.CONFLICT, f"process {self.id} has no terminal")
        resize(self._spawned.stdout, size)

    # Cleaning up

    def release(self) -> None:
        """Closes its files. Processes that still write to them get SIGPIPE or an error."""
        for file in tuple(self._open):
            self._rest(file)
            del self._open[file]
            if file != self._stdin:
                os.close(file)
        self._close_stdin()

    def value(self) -> dict[str, Any]:
        known: dict[str, Any] = {
            "id": self.id,
            "pid": self.pid,
            "argv": list(self.spec.argv),
            "cwd": self.spec.cwd,
            "terminal": self.spec.terminal is not None,
            "started": self.started,
            "running": not self.ended.done(),
            "stdin": {"open": self._stdin is not None, "taken": self.taken},
            "output": {"start": self.output.start, "end": self.output.end},
        }
        if self.ended.done():
            known["exit"] = self.ended.result().value()
        return known
