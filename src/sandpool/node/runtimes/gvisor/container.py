"""A container of a sandbox, and the commands that were started in it, as the main process sees them."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Protocol

from sandpool.base.errors import NodeError
from sandpool.node.backend import Unsupported
from sandpool.node.runtimes.contract import Ended, ExecPlan, Stdio
from sandpool.node.runtimes.gvisor import config, orders
from sandpool.node.runtimes.gvisor.config import Json
from sandpool.node.runtimes.gvisor.forked.world import as_user
from sandpool.node.runtimes.gvisor.keeping import Keeper
from sandpool.node.runtimes.namespaces.server import close

LOST = 137
SIGNALS = 64
MOST_ROUNDS = 20


def as_ended(code: object, *, oom: bool = False) -> Ended:
    """runsc tells a signal as a shell does; anything else is the end of somebody who cannot be believed."""
    if not isinstance(code, int) or isinstance(code, bool) or not 0 <= code <= 255:
        return Ended(LOST, 9, oom, "runsc said nothing that makes sense")
    number = code - 128 if 128 < code <= 128 + SIGNALS else 0
    return Ended(code, number, oom and number == 9)


def exit_status(said: str) -> object:
    """From what `runsc wait` says."""
    try:
        return json.loads(said)["exitStatus"]
    except (ValueError, KeyError, TypeError):
        return None


def family(table: str, leader: int) -> list[int]:
    """A process, its group and what descends from any of them, the eldest first, from the table of `runsc ps`: UID, PID,
    PPID, PGID and more."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for line in table.splitlines():
        words = line.split()
        if len(words) > 3 and all(word.isdigit() for word in words[1:4]):
            pid, parents[pid], group = (int(word) for word in words[1:4])
            found |= {pid} if leader in (pid, group) else set()
    grew = bool(found)
    while grew:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return sorted(found)


def eldest(table: str) -> int:
    """The process that a container began with: those of `exec` come later. 0 if there is none."""
    numbers = [int(words[1]) for words in map(str.split, table.splitlines()) if len(words) > 1 and words[1].isdigit()]
    return min(numbers, default=0)


class Around(Protocol):
    """What a container asks of its sandbox."""

    @property
    def keeper(self) -> Keeper: ...

    def awake(self) -> None:
        """NodeError if it is paused."""
        ...

    def number(self) -> int: ...

    def follow(self, number: int, task: GvisorTask) -> None: ...

    @property
    def killed(self) -> set[int]:
        """Processes that are dead, but that nobody inside may ever ask about: they stay in the table."""
        ...


class GvisorTask:
    def __init__(self, around: Around, name: str) -> None:
        self._around = around
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
        close(files)

    def begun(self, pid: object) -> None:
        self._pid = pid if isinstance(pid, int) else 0

    async def signal(self, number: int) -> None:
        """Older versions of runsc cannot tell a group."""
        if await self._tell("kill", f"--pgid={self._pid}", self._name, str(number)):
            await self._tell("kill", f"--pid={self._pid}", self._name, str(number))

    async def kill(self) -> None:
        """The eldest first, so that nobody goes on because of somebody's end. Again until nobody new has appeared: whoever
        starts others faster than this is found in the next round."""
        killed = self._around.killed
        for _ in range(MOST_ROUNDS):
            _, table, _ = await self._around.keeper.run("ps", self._name)
            found = [pid for pid in family(table, self._pid) if pid not in killed]
            if not found:
                break
            for pid in found:
                await self._around.keeper.run("kill", f"--pid={pid}", self._name, "9")
            killed.update(found)

    async def _tell(self, *argv: str) -> int:
        """The code of a command of runsc. Nobody to tell is no error."""
        if self._ended.done():
            return 0
        try:
            code, _, _ = await self._around.keeper.run(*argv)
        except NodeError:
            if not self._ended.done() and self._around.keeper.alive:
                raise
            return 0
        return code


class GvisorContainer(GvisorTask):
    """`process` is what runsc was told of its command, but for the user, who is known when it runs."""

    def __init__(self, around: Around, name: str, process: Json) -> None:
        super().__init__(around, name)
        self._process = process

    def runs_as(self, who: object) -> None:
        match who:
            case {"user": dict(user), "home": str(home)}:
                self._process = as_user(self._process, user, home)
            case _:
                raise NodeError("Gvisor", "the keeper of a sandbox gave an answer that makes no sense")

    async def signal(self, number: int) -> None:
        leader = 0 if self._ended.done() else eldest((await self._around.keeper.run("ps", self._name))[1])
        if not leader or await self._tell("kill", f"--pgid={leader}", self._name, str(number)):
            await self._tell("kill", self._name, str(number))

    async def kill(self) -> None:
        await self._tell("kill", "--all", self._name, "9")
        await asyncio.shield(self._ended)

    async def exec(self, plan: ExecPlan, stdio: Stdio) -> GvisorTask:
        self._around.awake()
        if self._ended.done():
            raise NodeError("NotRunning", "the container has ended")
        config.check(plan.argv, plan.env)
        number = self._around.number()
        task = GvisorTask(self._around, self._name)
        self._around.follow(number, task)
        order = {
            "do": "exec", "number": number, "name": self._name, "tty": plan.tty, "stdio": orders.given(stdio),
            "process": config.exec_process(plan, self._process),
        }  # fmt: skip
        asked = self._around.keeper.ask(order, orders.files(stdio, tty=plan.tty))
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
        """Nobody waits for it any more, but it has just been started."""
        if answer.cancelled() or answer.exception() is not None:
            return
        message, files = answer.result()
        close(files)
        task.begun(message.get("pid"))
        ending = asyncio.ensure_future(task.kill())
        ending.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def connect(self) -> socket.socket:
        raise Unsupported("gvisor", "start the daemon inside")
