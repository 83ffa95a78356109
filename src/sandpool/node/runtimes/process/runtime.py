"""The runtime without isolation: programs of a pod are ordinary processes with all rights of this user.

It is only for machines where nothing else works, and is used only if chosen by name. It refuses what it cannot do (mounting volumes, images
with files) and ignores what it cannot enforce (limits, a read-only root, the network); `probe` says so.
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
from sandpool.node.openat import disk_usage
from sandpool.node.runtimes.contract import (
    Container,
    ContainerPlan,
    Ended,
    ExecPlan,
    FoundSandbox,
    Limits,
    Sandbox,
    SandboxPlan,
    Stdio,
    Task,
)
from sandpool.node.runtimes.process.supervisor_client import MARK, SupervisorClient, reap
from sandpool.telemetry.log import logger

log = logger(__name__)

MEASURED_DEPTH = 100
"""A tree deeper than this counts as more than any limit."""


def mark_of(installation: str, directory: Path) -> str:
    return f"{installation}:{directory}"


class ProcessRuntime:
    """Runs pods as processes of this user."""

    name = "process"

    def __init__(self, directory: Path, *, installation: str) -> None:
        self._mark = mark_of(installation, directory)
        self._sandboxes: set[ProcessSandbox] = set()

    async def probe(self) -> Probe:
        supervisor = SupervisorClient(self._mark)
        try:
            plan = {"argv": ["true"], "env": dict(os.environ), "cwd": "/", "tty": False}
            _, ended = await supervisor.start(plan, Stdio())
            code = (await ended).code
        except NodeError as error:
            return Probe(False, "CannotStart", f"no process can be started: {error.message}")
        finally:
            await supervisor.end()
        return Probe(code == 0, "" if code == 0 else "CannotStart", "programs run as this user, without any isolation")

    def unheld(self, limits: Limits) -> str:
        return "Nothing is isolated and no limit is held: the pod runs on the backend process."

    async def open(self) -> None:
        log.warning("pods run WITHOUT ISOLATION: their programs can do all that this user can", backend=self.name)
        left = await asyncio.to_thread(reap, self._mark)
        if left:
            log.info("killed processes of an earlier run", processes=left)

    async def close(self) -> None:
        await asyncio.gather(*(sandbox.destroy() for sandbox in list(self._sandboxes)))

    async def create(self, plan: SandboxPlan) -> Sandbox:
        sandbox = ProcessSandbox(plan, self._mark, self._sandboxes)
        self._sandboxes.add(sandbox)
        return sandbox

    async def find(self) -> Sequence[FoundSandbox[Sandbox]]:
        return ()


class ProcessSandbox:
    """The processes of one pod."""

    def __init__(self, plan: SandboxPlan, mark: str, register: set[ProcessSandbox]) -> None:
        self._plan = plan
        self._mark = mark
        self._register = register
        self._supervisors: set[SupervisorClient] = set()

    def keep(self, name: str, note: Mapping[str, Any]) -> None:
        """It ends with this process."""

    def take_egress(self) -> socket.socket | None:
        return None

    async def start(self, plan: ContainerPlan, stdio: Stdio) -> Container:
        refuse(plan)
        supervisor = SupervisorClient(self._mark)
        self._supervisors.add(supervisor)
        supervisor.gone.add_done_callback(lambda _: self._supervisors.discard(supervisor))
        env = {**plan.env, MARK: self._mark}
        fields: dict[str, Any] = {"cwd": plan.cwd or "/", "env": env, "identity": identity(plan.user, plan.groups)}
        try:
            return await ProcessContainer.begin(supervisor, fields, plan, stdio)
        except BaseException:
            await supervisor.end()
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

    async def measure(self, directories: Sequence[Path]) -> list[tuple[int, int]]:
        used = [await asyncio.to_thread(disk_usage, [str(directory)], MEASURED_DEPTH) for directory in directories]
        return [(found[0][0], 0) for found in used]

    async def processes(self) -> Collection[int]:
        return ()  # unknown, so files that they hold outside the pod's directory are not counted

    async def stats(self) -> Stats:
        answers = await asyncio.gather(*(supervisor.call("stats") for supervisor in list(self._supervisors)))
        there = [answer for answer in answers if "error" not in answer]
        return Stats(
            sum(answer["cpu"] for answer in there),
            sum(answer["memory"] for answer in there),
            sum(answer["processes"] for answer in there),
        )

    async def destroy(self) -> None:
        await asyncio.gather(*(supervisor.end() for supervisor in list(self._supervisors)))
        self._register.discard(self)

    async def _every(self, number: int) -> None:
        await asyncio.gather(*(supervisor.call("every", signal=number) for supervisor in list(self._supervisors)))


class ProcessTask:
    """A command of a container."""

    def __init__(
        self, supervisor: SupervisorClient, pid: int, ended: asyncio.Future[Ended], terminal: int | None
    ) -> None:
        self._supervisor = supervisor
        self._pid = pid
        self.ended = ended
        self.terminal = terminal

    async def signal(self, number: int) -> None:
        await self._supervisor.call("signal", pid=self._pid, signal=number)

    async def kill(self) -> None:
        await self._supervisor.call("kill", pid=self._pid)


class ProcessContainer(ProcessTask):
    """The main command: when it ends, its supervisor ends everything in the container."""

    def __init__(
        self,
        supervisor: SupervisorClient,
        pid: int,
        ended: asyncio.Future[Ended],
        terminal: int | None,
        fields: Mapping[str, Any],
    ) -> None:
        super().__init__(supervisor, pid, ended, terminal)
        self._fields = fields

    @classmethod
    async def begin(
        cls, supervisor: SupervisorClient, fields: Mapping[str, Any], plan: ContainerPlan, stdio: Stdio
    ) -> ProcessContainer:
        pid, ended, terminal = await _spawn(supervisor, {**fields, "argv": plan.argv, "tty": plan.tty}, stdio)
        return cls(supervisor, pid, ended, terminal, fields)

    async def exec(self, plan: ExecPlan, stdio: Stdio) -> Task:
        fields = {
            **self._fields,
            "argv": plan.argv,
            "tty": plan.tty,
            "env": {**self._fields["env"], **plan.env},
            "cwd": plan.cwd or self._fields["cwd"],
        }
        return ProcessTask(self._supervisor, *await _spawn(self._supervisor, fields, stdio))

    async def connect(self) -> socket.socket:
        raise Unsupported("process", "start the daemon inside")


async def _spawn(
    supervisor: SupervisorClient, fields: Mapping[str, Any], stdio: Stdio
) -> tuple[int, asyncio.Future[Ended], int | None]:
    if not fields["tty"]:
        return *await supervisor.start(fields, stdio), None
    master, slave = pty.openpty()
    try:
        return *await supervisor.start(fields, Stdio(slave, slave, slave)), master
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)


def refuse(plan: ContainerPlan) -> None:
    """Refuses plans that this runtime cannot honour: images with files, and mounts."""
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
    """The user and groups to switch to; None to stay as we are. NodeError if that is impossible."""
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
    if uid not in (os.geteuid(), 0):  # an image without a user means root: here, that is this user
        raise NodeError(
            "UserUnsupported", f"only root can run programs as user {uid}; run as this user, or start as root"
        )
    return None
