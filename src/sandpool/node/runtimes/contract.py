"""The contract between the pods of this machine (node/pods) and what really isolates them.

A runtime knows nothing of pods' phases, images, volumes, logs or addresses: it is given folders, mounts, an argv and open
files, and gives back processes. All methods run on the event loop's thread and raise NodeError and nothing else. Everything
that a runtime starts ends with `destroy` of its sandbox, with `close`, or with the death of this process, however that comes:
what a dead process left behind (cgroups, mounts, folders, sockets) is taken away by the next `open`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sandpool.node.backend import Probe, Stats
from sandpool.node.images.image import RootFs


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Of one disk, by its number (254:0): bytes a second, of reading and of writing."""

    disk: str
    rate: int


@dataclass(frozen=True, slots=True)
class Limits:
    """None: not limited beyond the runtime's own defaults."""

    cpu: float | None = None  # cores
    memory: int | None = None  # bytes
    pids: int | None = None
    files: int | None = None  # open files per process
    storage: int | None = None  # bytes in the writable layer
    io: Bandwidth | None = None


@dataclass(frozen=True, slots=True)
class User:
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Mount:
    """`source` is a file or folder of the host; without one, a tmpfs of `size` that all containers of the pod that name the
    same `volume` share. The target is created if it is missing.

    The source is a way to look for it, not the thing itself: whoever mounts opens it, once, following no link below `within`, and
    below it `sub_path`, which may lead through links but not out. What is open then is mounted."""

    target: str
    source: Path | None = None
    volume: str = ""
    size: int | None = None
    read_only: bool = False
    owner: User | None = None  # what is there should belong to, where the runtime can make it so
    within: Path | None = (
        None  # a folder above `source` to which no sandbox can change the way; None: the one it is in, which is ours
    )
    sub_path: str = ""  # relative, without `..`
    make: bool = False  # a sub path that is missing becomes a folder
    required: bool = True  # False: a runtime that cannot mount leaves it out


@dataclass(frozen=True, slots=True)
class SandboxPlan:
    """One pod. `folder` exists, is empty or left from the same pod, belongs to us, and is removed by the caller after
    `destroy`; writable layers go there."""

    id: str  # the pod's uid
    hostname: str
    folder: Path
    limits: Limits = Limits()
    egress_port: int = 3128  # a socket listens on this port of the sandbox's loopback
    tenant: str = ""  # the pod's namespace: what its ended pods leave in use counts for it; empty: for nobody


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    name: str
    argv: tuple[str, ...]
    rootfs: RootFs
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = "/"
    user: str = ""  # as in an image: name or number, with a group after a colon; looked up inside the root file system
    groups: tuple[int, ...] = ()
    read_only: bool = False  # the root file system, but not its mounts
    mounts: tuple[Mount, ...] = ()
    limits: Limits = Limits()
    tty: bool = False
    attempt: int = 0  # each start of the same container has a fresh writable layer
    served: bool = False  # somebody will `connect`: a runtime that can gets boxd ready


@dataclass(frozen=True, slots=True)
class Stdio:
    """Open files of this process. They are passed on; the caller still owns and closes its own. None: /dev/null."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None


@dataclass(frozen=True, slots=True)
class ExecPlan:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # over the container's
    cwd: str = ""  # empty: the container's
    tty: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    code: int  # 128 + signal when a signal ended it
    signal: int = 0
    oom: bool = False
    message: str = ""
    lost: bool = False  # not its own doing: what holds all sandboxes has ended


class Task(Protocol):
    """A process in a sandbox."""

    @property
    def ended(self) -> asyncio.Future[Ended]:
        """Never cancelled, never an exception: a lost runtime is an end too, with code 137 and a message."""
        ...

    @property
    def terminal(self) -> int | None:
        """The master of its terminal, if it has one: a file descriptor that the caller owns."""
        ...

    async def signal(self, number: int) -> None:
        """To the process and its group. Nothing happens if it has ended."""
        ...

    async def kill(self) -> None:
        """Ends it and all that it started, as far as the runtime can tell them from others."""
        ...


class Container(Task, Protocol):
    """The main process of a container; when it ends, everything in the container ends."""

    async def exec(self, plan: ExecPlan, stdio: Stdio) -> Task:
        """NodeError "StartError" if the command cannot be started, with the words that a shell would use."""
        ...

    async def connect(self) -> socket.socket:
        """A connection to boxd in this container, which is started when it is first asked for. Unsupported where it is not."""
        ...


def without(limits: Limits, held: Collection[str]) -> list[str]:
    """Of the limits that control groups hold, those that are asked for and not held."""
    asked = (("cpu", limits.cpu), ("memory", limits.memory))
    return [name for name, limit in asked if limit is not None and name not in held]


class Sandbox(Protocol):
    """What the containers of a pod share: network, hostname, ipc, limits."""

    def take_egress(self) -> socket.socket | None:
        """Once: the socket that listens inside on `egress_port`. None where the runtime has no such thing."""
        ...

    async def start(self, plan: ContainerPlan, stdio: Stdio) -> Container:
        """Returns when the command runs. NodeError if it cannot be started; nothing of it is left then. "StartError": because
        of the command itself. "SandboxGone": the whole sandbox is lost; it is to be destroyed and made anew."""
        ...

    async def dial(self, port: int) -> socket.socket:
        """A connected, non-blocking socket to that port of the sandbox's loopback. NodeError "ConnectionRefused"."""
        ...

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def freeze(self) -> None:
        """Stops all processes for a moment. Unlike after `pause`, what is asked of it meanwhile waits. May be repeated."""
        ...

    async def thaw(self) -> None:
        """The opposite; one that is paused stays so."""
        ...

    async def measure(self, folders: Sequence[Path]) -> list[tuple[int, int]]:
        """Bytes on disk and inodes below each of these folders of the machine, whoever the files belong to. One too deep to be
        measured counts as more than any limit. Inodes may be 0 where nobody counts them."""
        ...

    async def processes(self) -> Collection[int]:
        """The numbers, on the machine, of all that runs in it, as far as they can be known."""
        ...

    async def stats(self) -> Stats: ...

    async def destroy(self) -> None:
        """Ends everything in it and takes away everything of it. May be repeated; NodeError if something could not be
        taken away, and then it may be tried again."""
        ...


class Runtime(Protocol):
    @property
    def name(self) -> str:
        """As in `--backend` and RuntimeClass."""
        ...

    async def probe(self) -> Probe:
        """Really runs something and looks what is enforced. May be called at any time."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def create(self, plan: SandboxPlan) -> Sandbox: ...

    def unheld(self, limits: Limits) -> str:
        """Which of these limits of a pod this machine does not hold, and what holds instead; empty: all are held."""
        ...
