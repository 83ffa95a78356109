"""The contract between node/pods and a runtime that isolates processes. The verbs are those of CRI: run a sandbox, start a container in it,
exec, port-forward (`dial`), stats, remove (`destroy`).

A runtime knows nothing of phases, images, volumes, logs or addresses: it gets directories, mounts, an argv and open files, and returns
processes. All methods run on the event loop's thread and raise only NodeError. Everything that a runtime starts ends with `destroy` of its
sandbox or with `close`. When this process dies without that, sandboxes may stay, and a later process gets them from `find`; everything else that a
dead process left behind (cgroups, mounts, directories, sockets) is removed by the next `open`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from sandpool.model.pod_streams import Command
from sandpool.node.backend import Probe, Stats
from sandpool.node.images.image import RootFs


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second, for reading and for writing, of one disk, by its device number (254:0)."""

    disk: str
    rate: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits. None means that only the runtime's own defaults apply."""

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
    """A mount. `source` is a file or directory of the host. Without one, it is a tmpfs of `size`, shared by all containers of the pod that name
    the same `volume`. The target is created if it is missing.

    The source is a path, not an open file. The runtime opens it once, without following links below `within`; then it opens `sub_path` below
    it, which may go through links but not leave the source. It mounts exactly what it has opened."""

    target: str
    source: Path | None = None
    volume: str = ""
    size: int | None = None
    read_only: bool = False
    owner: User | None = None  # of the content, where the runtime can set it
    within: Path | None = (
        None  # a directory above `source` whose path no sandbox can change; None: the parent of `source`, which is ours
    )
    sub_path: str = ""  # relative, without `..`
    make: bool = False  # create a missing sub path as a directory
    required: bool = True  # False: a runtime that cannot mount may leave it out


@dataclass(frozen=True, slots=True)
class SandboxPlan:
    """The sandbox of one pod. `directory` is for writable layers. It exists, is empty or left from the same pod, and belongs to us; the caller
    removes it after `destroy`."""

    id: str  # the pod's uid
    hostname: str
    directory: Path
    limits: Limits = Limits()
    egress_port: int = 3128  # a socket listens on this port of the sandbox's loopback
    tenant: str = ""  # the pod's namespace, which is charged for resources that its ended pods left in use; empty: nothing is charged


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    name: str
    argv: tuple[str, ...]
    rootfs: RootFs
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = "/"
    user: str = ""  # as in an image config: name or number, optionally with `:group`; looked up in the root file system
    groups: tuple[int, ...] = ()
    read_only: bool = False  # the root file system, but not its mounts
    mounts: tuple[Mount, ...] = ()
    limits: Limits = Limits()
    tty: bool = False
    attempt: int = 0  # each start of the same container has a fresh writable layer
    served: bool = False  # `connect` will be called, so the runtime may start boxd in advance


@dataclass(frozen=True, slots=True)
class Stdio:
    """Open files that the new process inherits; the caller closes its own copies. None means /dev/null."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    kept: tuple[int, ...] = ()  # files of the caller that a later process gets back with the container (`Runtime.find`)


ExecPlan = Command
"""What `exec` runs: the command that a client sent, unchanged."""


@dataclass(frozen=True, slots=True)
class Ended:
    code: int  # 128 + signal when a signal ended it
    signal: int = 0
    oom: bool = False
    message: str = ""
    lost: bool = False  # not caused by this process: the process that all sandboxes depend on has ended


class Task(Protocol):
    """A process in a sandbox."""

    @property
    def ended(self) -> asyncio.Future[Ended]:
        """How the process ended. Never cancelled and never an exception: if the runtime is lost, it has code 137 and a message."""
        ...

    @property
    def terminal(self) -> int | None:
        """The master side of its terminal, if it has one. The caller owns the file descriptor."""
        ...

    async def signal(self, number: int) -> None:
        """Sends a signal to the process and its group. Does nothing if it has ended."""
        ...

    async def kill(self) -> None:
        """Kills it and all processes that it started, as far as the runtime can identify them."""
        ...


class Container(Task, Protocol):
    """The main process of a container; when it ends, everything in the container ends."""

    async def exec(self, plan: ExecPlan, stdio: Stdio) -> Task:
        """Runs a command in the container. NodeError "StartError", with a message like a shell's, if it cannot be started."""
        ...

    async def connect(self) -> socket.socket:
        """Connects to boxd in this container, which is started on first use. Unsupported if the runtime has no boxd."""
        ...


def without(limits: Limits, held: Collection[str]) -> list[str]:
    """The requested limits that need control groups and are not in `held`, so are not enforced."""
    asked = (("cpu", limits.cpu), ("memory", limits.memory))
    return [name for name, limit in asked if limit is not None and name not in held]


class Sandbox(Protocol):
    """What the containers of a pod share: network, hostname, ipc, limits."""

    def keep(self, name: str, note: Mapping[str, Any]) -> None:
        """Keeps a JSON value, instead of the one before by that name, for a later process that finds this sandbox. Runtimes whose sandboxes end
        with this process ignore it."""
        ...

    def take_egress(self) -> socket.socket | None:
        """The socket that listens inside the sandbox on `egress_port`. Call it once. None if the runtime has none."""
        ...

    async def start(self, plan: ContainerPlan, stdio: Stdio) -> Container:
        """Starts a container; returns when its command runs. NodeError if it cannot be started; nothing of it is left then. Reason "StartError":
        the command itself is at fault. "SandboxGone": the whole sandbox is lost, and must be destroyed and created again."""
        ...

    async def dial(self, port: int) -> socket.socket:
        """Connects to a port on the sandbox's loopback; returns a non-blocking socket. NodeError "ConnectionRefused" if nothing listens."""
        ...

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def freeze(self) -> None:
        """Stops all processes for a short time. Unlike with `pause`, other calls wait until `thaw`. May be repeated."""
        ...

    async def thaw(self) -> None:
        """Ends `freeze`. A paused sandbox stays paused."""
        ...

    async def measure(self, directories: Sequence[Path]) -> list[tuple[int, int]]:
        """Bytes on disk and inodes below each of these directories, whoever owns the files. A tree too deep to measure counts as more than any
        limit. Inodes may be 0 if the runtime does not count them."""
        ...

    async def processes(self) -> Collection[int]:
        """The host pids of all processes in the sandbox, as far as they are known."""
        ...

    async def stats(self) -> Stats: ...

    async def destroy(self) -> None:
        """Kills all its processes and removes everything of it. May be repeated. NodeError if something could not be removed; call it again
        then."""
        ...


@dataclass(frozen=True, slots=True)
class FoundContainer:
    """A run of a container that an earlier process has started. It may have ended since. The caller owns the files, which are those that were
    given as `Stdio.kept`."""

    container: Container
    files: tuple[int, ...] = ()


S = TypeVar("S", bound=Sandbox, covariant=True)


@dataclass(frozen=True, slots=True)
class FoundSandbox(Generic[S]):
    """A sandbox that an earlier process has made. `containers` are the latest runs, by name and number of the run."""

    plan: SandboxPlan
    sandbox: S
    notes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # those of `Sandbox.keep`
    containers: Mapping[tuple[str, int], FoundContainer] = field(default_factory=dict)


class Runtime(Protocol):
    @property
    def name(self) -> str:
        """The name, as in `--backend` and RuntimeClass."""
        ...

    async def probe(self) -> Probe:
        """Runs a test sandbox to find out what works and what is enforced. May be called at any time."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def create(self, plan: SandboxPlan) -> Sandbox: ...

    async def find(self) -> Sequence[FoundSandbox[Sandbox]]:
        """The sandboxes that an earlier process of this installation left running, once, after `open`. The caller takes each over or destroys it."""
        ...

    def unheld(self, limits: Limits) -> str:
        """A note about which of these limits this machine does not enforce, and what applies instead. Empty if all are enforced."""
        ...
