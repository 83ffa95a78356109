"""The processes that boxd has started: the running ones, and the newest of the ended ones."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress

from sandpool.boxd.processes.memory import MemoryKills
from sandpool.boxd.processes.process import Process
from sandpool.boxd.processes.spawn import spawn
from sandpool.boxd.processes.spec import Spec
from sandpool.wire.codes import Code, Refused

MOST_RUNNING = 4096
MOST_ENDED = 256


class Table:
    def __init__(
        self, environment: Mapping[str, str], place: Callable[[str], str | int], kills: MemoryKills | None = None
    ) -> None:
        """`place` checks a requested working directory and returns a path, or an open directory that this table then owns."""
        self._environment = environment
        self._place = place
        self._kills = kills or MemoryKills()
        self._processes: dict[str, Process] = {}
        self._ended: dict[str, None] = {}  # oldest first
        # Ids differ between runs of boxd in the same sandbox, so that no client reattaches to the wrong process after a restart.
        self._last = secrets.randbelow(1 << 20) << 10
        self._marks = secrets.token_hex(8)
        self.closing = False

    def start(self, spec: Spec) -> Process:
        if self.closing:
            raise Refused(Code.UNAVAILABLE, "the sandbox is being shut down")
        if len(self._processes) - len(self._ended) >= MOST_RUNNING:
            raise Refused(Code.EXHAUSTED, f"{MOST_RUNNING} processes are running already; end some")
        place = self._place(spec.cwd)
        self._last += 1
        id = str(self._last)
        try:
            spawned = spawn(spec, self._environment, place, f"{self._marks}-{id}")
        finally:
            if isinstance(place, int):
                os.close(place)
        process = Process(id, spec, spawned, self._kills)
        self._processes[process.id] = process
        process.ended.add_done_callback(lambda _: self._note_end(process))
        if spec.stdin is not None:
            feeding = asyncio.get_running_loop().create_task(_feed_all(process, spec.stdin))
            feeding.add_done_callback(lambda done: done.cancelled() or done.exception())
        return process

    def get(self, id: str) -> Process:
        process = self._processes.get(id)
        if process is None:
            raise Refused(Code.NOT_FOUND, f"no process {id!r}; it never existed, or it ended long ago")
        return process

    def all(self) -> list[Process]:
        return list(self._processes.values())

    def remove(self, id: str) -> None:
        """Kills the process if it is running, and forgets it."""
        process = self.get(id)
        if process.ended.done():
            process.signal(signal.SIGKILL)
        else:
            process.end()
        self._forget(id)

    def _note_end(self, process: Process) -> None:
        if process.id not in self._processes:
            return
        self._ended[process.id] = None
        while len(self._ended) > MOST_ENDED:
            self._forget(next(iter(self._ended)))

    def _forget(self, id: str) -> None:
        self._ended.pop(id, None)
        process = self._processes.pop(id)
        if process.ended.done():
            process.release()
        else:
            process.ended.add_done_callback(lambda _: process.release())

    async def close(self, grace: float = 2.0) -> None:
        """Ends all processes: SIGTERM first, and SIGKILL after the grace period."""
        self.closing = True
        for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, grace)):
            running = [process for process in self.all() if not process.ended.done()]
            for process in self.all():
                process.signal(number)
            if running:
                await asyncio.wait([process.ended for process in running], timeout=patience)
        for process in self.all():
            process.release()


async def _feed_all(process: Process, data: bytes) -> None:
    with suppress(Refused):  # it closed its stdin early
        await process.feed(data)
    await process.end_input()
