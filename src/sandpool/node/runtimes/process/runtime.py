"""The runtime without isolation. Programs of a pod are ordinary processes: they see and may do what this user may.

Only for machines where nothing else works, and only when it was asked for by name. What it cannot do at all (mounting volumes, images
with files of their own) it refuses; what it cannot enforce (limits, a read-only root, the network) it leaves, and `probe`
says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import pwd
import signal
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from sandpool.base.errors import NodeError
from sandpool.node.backend import Probe, Stats, Unsupported
from sandpool.node.runtimes.contract import (
    Container,
    ContainerPlan,
    Ended,
    ExecPlan,
    Limits,
    Sandbox,
    SandboxPlan,
    Stdio,
    Task,
)
from sandpool.node.runtimes.process.family import MARK, Family, reap
from sandpool.node.volumes.folders import used
from sandpool.telemetry.log import logger

log = logger(__name__)


def mark_of(installation: str, folder: Path) -> str:
    return f"{installation}:{folder}"


class ProcessRuntime:
    name = "process"

    def __init__(self, folder: Path, *, installation: str) -> None:
        self._mark = mark_of(installation, folder)
        self._sandboxes: set[ProcessSandbox] = set()

    async def probe(self) -> Probe:
        family = Family(self._mark)
        try:
            plan = {"argv": ["true"], "env": dict(os.environ), "cwd": "/", "tty": False}
            _, ended = await family.start(plan, Stdio())
            code = (await ended).code
        except NodeError as error:
            return Probe(False, "CannotStart", f"no process can be started: {error.message}")
        finally:
            await family.end()
        return Probe(code == 0, "" if code == 0 else "CannotStart", "programs run as this user, without any isolation")

    def unheld(self, limits: Limits) -> str:
        return "Nothing is isolated and no limit is held: the pod runs on the backend process."

    async def open(self) -> None:
        log.warning("pods run WITHOUT ISOLATION: their programs can do all that this user can", backend=self.name)
        left = await asyncio.to_thread(reap, self._mark)
        if left:
            log.info("ended what an earlier process left", processes=left)

    async def close(self) -> None:
        await asyncio.gather(*(sandbox.destroy() for sandbox in list(self._sandboxes)))

    async def create(self, plan: SandboxPlan) -> Sandbox:
        sandbox = ProcessSandbox(plan, self._mark, self._sandboxes)
        self._sandboxes.add(sandbox)
        return sandbox


class ProcessSandbox:
    def __init__(self, plan: SandboxPlan, mark: str, register: set[ProcessSandbox]) -> None:
        self._plan = plan
        self._mark = mark
        self._register = register
        self._families: set[Family] = set()

    def take_egress(self) -> socket.socket | None:
        return None

    async def start(self, plan: ContainerPlan, stdio: Stdio) -> Container:
        refuse(plan)
        family = Family(self._mark)
        self._families.add(family)
        family.gone.add_done_callback(lambda _: self._families.discard(family))
        env = {**plan.env, MARK: self._mark}
        words: dict[str, Any] = {"cwd": plan.cwd or "/", "env": env, "identity": identity(plan.user, plan.groups)}
        try:
            return await ProcessContainer.begin(family, words, plan, stdio)
        except BaseException:
            await family.end()
            raise

    async def dial(self, port: int) -> socket.socket:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError):
                raise
            raise NodeError("ConnectionRefused", f"port {port}: {error.strerror or error}") from error
        return connection

    async def pause(self) -> None:
        await self._every(signal.SIGSTOP)

    async def resume(self) -> None:
        await self._every(signal.SIGCONT)

    async def freeze(self) -> None:
        await self.pause()

    async def thaw(self) -> None:
        await self.resume()

    async def measure(self, folders: Sequence[Path]) -> list[tuple[int, int]]:
        return [(await asyncio.to_thread(used, folder), 0) if folder.is_dir() else (0, 0) for folder in folders]

    async def processes(self) -> Collection[int]:
        return ()  # what they write outside of the pod's folder is nobody's

    async def stats(self) -> Stats:
        answers = await asyncio.gather(*(family.order("stats") for family in list(self._families)))
        there = [answer for answer in answers if "error" not in answer]
        return Stats(
            sum(answer["cpu"] for answer in there),
            sum(answer["memory"] for answer in there),
            sum(answer["processes"] for answer in there),
        )

    async def destroy(self) -> None:
        await asyncio.gather(*(family.end() for family in list(self._families)))
        self._register.discard(self)

    async def _every(self, number: int) -> None:
        await asyncio.gather(*(family.order("every", signal=number) for family in list(self._families)))


class ProcessTask:
    def __init__(self, family: Family, pid: int, ended: asyncio.Future[Ended], terminal: int | None) -> None:
        self._family = family
        self._pid = pid
        self.ended = ended
        self.terminal = terminal

    async def signal(self, number: int) -> None:
        await self._family.order("signal", pid=self._pid, signal=number)

    async def kill(self) -> None:
        await self._family.order("kill", pid=self._pid)


class ProcessContainer(ProcessTask):
    """Its supervisor ends when it ends, and with it everything in the container."""

    def __init__(
        self, family: Family, pid: int, ended: asyncio.Future[Ended], terminal: int | None, words: Mapping[str, Any]
    ) -> None:
        super().__init__(family, pid, ended, terminal)
        self._words = words

    @classmethod
    async def begin(
        cls, family: Family, words: Mapping[str, Any], plan: ContainerPlan, stdio: Stdio
    ) -> ProcessContainer:
        pid, ended, terminal = await _spawn(family, {**words, "argv": plan.argv, "tty": plan.tty}, stdio)
        return cls(family, pid, ended, terminal, words)

    async def exec(self, plan: ExecPlan, stdio: Stdio) -> Task:
        words = {
            **self._words,
            "argv": plan.argv,
            "tty": plan.tty,
            "env": {**self._words["env"], **plan.env},
            "cwd": plan.cwd or self._words["cwd"],
        }
        return ProcessTask(self._family, *await _spawn(self._family, words, stdio))

    async def connect(self) -> socket.socket:
        raise Unsupported("process", "start the daemon inside")


async def _spawn(
    family: Family, words: Mapping[str, Any], stdio: Stdio
) -> tuple[int, asyncio.Future[Ended], int | None]:
    if not words["tty"]:
        return *await family.start(words, stdio), None
    master, slave = pty.openpty()
    try:
        return *await family.start(words, Stdio(slave, slave, slave)), master
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)


def refuse(plan: ContainerPlan) -> None:
    """What would make the program run on something else than it was promised."""
    if plan.rootfs.layers or not plan.rootfs.host:
        raise NodeError(
            "ImageUnsupported",
            f"container {plan.name}: the backend process runs programs of this machine only; use the image host, or another "
            "backend",
        )
    for mount in plan.mounts:
        if mount.required:
            raise NodeError(
                "MountUnsupported",
                f"container {plan.name}: the backend process cannot mount anything at {mount.target}; remove the volumeMount, "
                "or use another backend",
            )


def identity(user: str, groups: tuple[int, ...]) -> dict[str, object] | None:
    """Whom to become; None: nobody else. NodeError if that cannot be done."""
    name, _, group = user.partition(":")
    entry = None
    with contextlib.suppress(KeyError):
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name) if name else None
    if name and entry is None and not name.isdigit():
        raise NodeError("UserUnknown", f"this machine has no user {name!r}; set securityContext.runAsUser to a number")
    if group and not group.isdigit():
        raise NodeError("GroupUnknown", f"the group {group!r} must be a number; set securityContext.runAsGroup")
    uid = os.geteuid() if not name else int(name) if name.isdigit() else entry.pw_uid if entry else 0
    gid = int(group) if group else entry.pw_gid if entry else os.getegid() if not name else 0
    if os.geteuid() == 0:
        return {"uid": uid, "gid": gid, "groups": list(groups)} if name or group or groups else None
    if uid not in (os.geteuid(), 0):  # root inside is what an image says that says nothing: here, it is this user
        raise NodeError(
            "UserUnsupported", f"only root can run programs as user {uid}; run as this user, or start as root"
        )
    return None
