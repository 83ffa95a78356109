"""The main process's view of a container in a gVisor sandbox, and of the commands started in it."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Protocol

from sandpool.base.errors import NodeError
from sandpool.node.backend import Unsupported
from sandpool.node.runtimes.contract import Ended, ExecPlan, Stdio
from sandpool.node.runtimes.gvisor import requests
from sandpool.node.runtimes.gvisor.forked.runsc_root import as_user
from sandpool.node.runtimes.gvisor.requests import Json
from sandpool.node.runtimes.gvisor.shim_client import ShimClient
from sandpool.node.runtimes.namespaces.fork_server import close_files

LOST = 137
SIGNALS = 64
MOST_ROUNDS = 20


def as_ended(code: object, *, oom: bool = False) -> Ended:
    """Converts the exit code of runsc, which reports a signal as a shell does (128 + signal). Anything else counts as lost."""
    if not isinstance(code, int) or isinstance(code, bool) or not 0 <= code <= 255:
        return Ended(LOST, 9, oom, "runsc returned an unexpected answer")
    number = code - 128 if 128 < code <= 128 + SIGNALS else 0
    return Ended(code, number, oom and number == 9)


def exit_status(said: str) -> object:
    """The exit status in the output of `runsc wait`; None if there is none."""
    try:
        return json.loads(said)["exitStatus"]
    except (ValueError, KeyError, TypeError):
        return None


def process_tree(table: str, leader: int) -> list[int]:
    """The pids of a process, its process group and all descendants, oldest first, from the table of `runsc ps`: UID, PID, PPID, PGID and
    more."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for line in table.splitlines():
        fields = line.split()
        if len(fields) > 3 and all(word.isdigit() for word in fields[1:4]):
            pid, parents[pid], group = (int(word) for word in fields[1:4])
            found |= {pid} if leader in (pid, group) else set()
    grew = bool(found)
    while grew:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return sorted(found)


def first_process(table: str) -> int:
    """The pid of the container's main process, which is older than those of `exec`. 0 if there is none."""
    numbers = [
        int(fields[1]) for fields in map(str.split, table.splitlines()) if len(fields) > 1 and fields[1].isdigit()
    ]
    return min(numbers, default=0)


class ContainerHost(Protocol):
    """What a container needs from its sandbox."""

    @property
    def shim(self) -> ShimClient: ...

    def awake(self) -> None:
        """Raises NodeError if the sandbox is paused."""
        ...

    def number(self) -> int: ...

    def track(self, number: int, task: GvisorTask) -> None: ...

    @property
    def killed(self) -> set[int]:
        """Processes that were killed but never reaped inside, so runsc still lists them."""
        ...


class GvisorTask:
    """A command in a container: its main command, or one started by `exec`."""

    def __init__(self, host: ContainerHost, name: str) -> None:
        self._host = host
        self._name = name  # the container's, as runsc knows it
        self._ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._terminal: int | None = None
        self._pid = 0

    @property
    def ended(self) -> asyncio.Future[Ended]:
        return self._ended

    @property
    def terminal(self) -> int | None:
        return self._terminal

    def finish(self, ended: Ended) -> None:
        if not self._ended.done():
            self._ended.set_result(ended)

    def give_terminal(self, files: list[int]) -> None:
        self._terminal = files.pop(0) if files else None
        close_files(files)

    def begun(self, pid: object) -> None:
        self._pid = pid if isinstance(pid, int) else 0

    async def signal(self, number: int) -> None:
        """Signals the process group, or only the process if that fails: older versions of runsc cannot signal a group."""
        if await self._kill_with("kill", f"--pgid={self._pid}", self._name, str(number)):
            await self._kill_with("kill", f"--pid={self._pid}", self._name, str(number))

    async def kill(self) -> None:
        """Kills the oldest process first, so that no process reacts to the end of a child. Repeats until no new process appears, because a process
        may fork during a round."""
        killed = self._host.killed
        for _ in range(MOST_ROUNDS):
            _, table, _ = await self._host.shim.run("ps", self._name)
            found = [pid for pid in process_tree(table, self._pid) if pid not in killed]
            if not found:
                break
            for pid in found:
                await self._host.shim.run("kill", f"--pid={pid}", self._name, "9")
            killed.update(found)

    async def _kill_with(self, *argv: str) -> int:
        """Runs a runsc command and returns its exit code. It is not an error if the task has ended."""
        if self._ended.done():
            return 0
        try:
            code, _, _ = await self._host.shim.run(*argv)
        except NodeError:
            if not self._ended.done() and self._host.shim.alive:
                raise
            return 0
        return code


class GvisorContainer(GvisorTask):
    """The main command of a container. `process` is its OCI process, without the user, which is known once it runs."""

    def __init__(self, host: ContainerHost, name: str, process: Json) -> None:
        super().__init__(host, name)
        self._process = process

    def runs_as(self, who: object) -> None:
        match who:
            case {"user": dict(user), "home": str(home)}:
                self._process = as_user(self._process, user, home)
            case _:
                raise NodeError("Gvisor", "the keeper of a sandbox returned an unexpected answer")

    async def signal(self, number: int) -> None:
        leader = 0 if self._ended.done() else first_process((await self._host.shim.run("ps", self._name))[1])
        if not leader or await self._kill_with("kill", f"--pgid={leader}", self._name, str(number)):
            await self._kill_with("kill", self._name, str(number))

    async def kill(self) -> None:
        await self._kill_with("kill", "--all", self._name, "9")
        await asyncio.shield(self._ended)

    async def exec(self, plan: ExecPlan, stdio: Stdio) -> GvisorTask:
        self._host.awake()
        if self._ended.done():
            raise NodeError("NotRunning", "the container has ended")
        requests.check_command(plan.argv, plan.env)
        number = self._host.number()
        task = GvisorTask(self._host, self._name)
        self._host.track(number, task)
        request = {
            "do": "exec", "number": number, "name": self._name, "tty": plan.tty, "stdio": requests.stdio_given(stdio),
            "process": requests.exec_process(plan, self._process),
        }  # fmt: skip
        asked = self._host.shim.ask(request, requests.stdio_files(stdio, tty=plan.tty))
        try:
            message, files = await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(lambda answer: self._abandon(task, answer))
            raise
        except NodeError as error:
            task.finish(Ended(LOST, 9, message=error.message))
            raise
        task.begun(message.get("pid"))
        task.give_terminal(files)
        return task

    def _abandon(self, task: GvisorTask, answer: asyncio.Future[tuple[Json, list[int]]]) -> None:
        """The caller is gone, but the command has just been started: kill it."""
        if answer.cancelled() or answer.exception() is not None:
            return
        message, files = answer.result()
        close_files(files)
        task.begun(message.get("pid"))
        ending = asyncio.ensure_future(task.kill())
        ending.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def connect(self) -> socket.socket:
        raise Unsupported("gvisor", "start the daemon inside")
