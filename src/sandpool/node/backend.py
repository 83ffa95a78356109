"""The contract between the kubelet and whatever really runs pods. One suite (tests/conformance/backends) holds for each.

A backend is told *what* to run by uid and is asked *how it is*, by `look`; it says *that* something changed by calling back.
Orders (`start`, `restart`, `stop`) return as soon as the backend has taken them over: what becomes of them shows in `look`. So
nobody waits inside a reconcile, and every order may be repeated.
All methods run on the event loop's thread. They raise NodeError (its BackendError and those of the parts below) and nothing else.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import msgspec

from sandpool.base.errors import NodeError
from sandpool.model.metadata import Key, Model, Uid
from sandpool.node.images.port import Credential
from sandpool.node.volumes.spec import VolumeSpec


class BackendError(NodeError):
    """An order that could not be carried out."""


class Unsupported(BackendError):
    """This backend cannot do that at all; `probe` said so."""

    def __init__(self, backend: str, what: str) -> None:
        super().__init__("Unsupported", f"the backend {backend} cannot {what}; choose another backend")


class UnknownPod(BackendError):
    """No such pod or container runs here."""

    def __init__(self, uid: Uid, container: str = "") -> None:
        what = f"container {container!r} of pod {uid}" if container else f"pod {uid}"
        super().__init__("NotFound", f"{what} does not run here; look at the pod's status")


ADDRESS = "\0address\0"
"""Stands in a value of `Workload.env` for the address of the pod, which only the backend knows, and which it puts in."""


# What to run


class EnvVar(Model, frozen=True):
    name: str = ""
    value: str = ""


class ContainerPort(Model, frozen=True):
    container_port: int = 0
    name: str = ""
    protocol: str = "TCP"


class Resources(Model, frozen=True):
    limits: dict[str, str] = msgspec.field(default_factory=dict)
    requests: dict[str, str] = msgspec.field(default_factory=dict)


class Capabilities(Model, frozen=True):
    add: tuple[str, ...] = ()


class SecurityContext(Model, frozen=True):
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool = False
    privileged: bool = False
    capabilities: Capabilities = Capabilities()


class PodSecurityContext(Model, frozen=True):
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    fs_group: int | None = None
    supplemental_groups: tuple[int, ...] = ()


class VolumeMount(Model, frozen=True):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    read_only: bool = False


class ContainerSpec(Model, frozen=True):
    """A container as a backend reads it. Fields are added when a backend enforces them, not before. `env` is for the kubelet,
    which looks up what it refers to: a backend takes `Workload.env`."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    image_pull_policy: str = ""
    resources: Resources = Resources()
    security_context: SecurityContext = SecurityContext()
    volume_mounts: tuple[VolumeMount, ...] = ()
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    termination_message_path: str = ""
    termination_message_policy: str = ""
    restart_policy: str = ""  # of an init container: Always makes it a sidecar


class WorkloadSpec(Model, frozen=True):
    """The part of a pod's spec that a backend reads."""

    hostname: str = ""
    security_context: PodSecurityContext = PodSecurityContext()
    runtime_class_name: str | None = None
    host_network: bool = False
    host_pid: bool = msgspec.field(name="hostPID", default=False)
    host_ipc: bool = msgspec.field(name="hostIPC", default=False)
    init_containers: tuple[ContainerSpec, ...] = ()
    containers: tuple[ContainerSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """One pod to run. `was` is how the API last knew it, when it ran before: a backend whose pods outlive the process has
    found it by itself and ignores it; one that `revives` brings it back as it was; any other starts it anew, if it can with
    the same address, and its containers carry on from the `restarts` and `last` of `was`, which are already counted."""

    uid: Uid
    key: Key
    spec: WorkloadSpec
    annotations: Mapping[str, str] = field(default_factory=dict)
    was: Running | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict, repr=False
    )  # by container; all references looked up
    volumes: tuple[VolumeSpec, ...] = ()
    credentials: tuple[Credential, ...] = ()

    @property
    def holder(self) -> str:
        """As which it holds images: by name, for whoever lists them, and by uid, because a name is used again."""
        return f"{self.key} ({self.uid})"


# How it is


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not started yet."""

    reason: str = "ContainerCreating"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    at: datetime
    ready: bool = False  # as far as the backend itself can tell


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container, or a command, ended."""

    code: int
    at: datetime
    started_at: datetime | None = None
    signal: int = 0
    reason: str = ""  # OOMKilled and the like; empty: what the code implies
    message: str = ""


State = Waiting | Started | Exit

SANDBOX_LOST = "SandboxLost"
"""The reason of an end that was not the container's own doing: what holds all sandboxes has ended, and they with it."""


@dataclass(frozen=True, slots=True)
class RunningContainer:
    name: str
    state: State
    id: str = ""
    restarts: int = 0
    last: Exit | None = None  # how the run before this one ended
    image_id: str = ""  # what the image turned out to be
    spared: int = 0  # of its restarts those after an end that was not its own doing: they are not held against it


@dataclass(frozen=True, slots=True)
class Running:
    """One pod as its backend knows it. `address` is empty until it has one, then stays the same, and is given back when the pod is
    reclaimed."""

    uid: Uid
    key: Key
    address: str = ""
    init: tuple[RunningContainer, ...] = ()
    containers: tuple[RunningContainer, ...] = ()
    stopping: bool = False
    paused: bool = False
    notes: tuple[
        str, ...
    ] = ()  # what the user should know: ports that are mapped to others, sizes that nobody enforces
    evicted: str = (
        ""  # why the backend has ended it by itself, in the words of a pod's status; it is stopping then, for good
    )
    reclaimed: bool = False  # it is over, and nothing of it is left but its logs


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether this backend works on this machine, found out by trying, and what it really enforces."""

    available: bool
    reason: str = ""  # one word, when it is not available
    message: str = ""  # what is missing and what to do
    enforced: frozenset[str] = frozenset()  # "filesystem", "network", "memory", "pids", ...


@dataclass(frozen=True, slots=True)
class Stats:
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    processes: int = 0


@dataclass(frozen=True, slots=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    tty: bool = False


class Streams(Protocol):
    """The other end of a command. The backend reads and writes no faster than these let it."""

    async def read(self) -> bytes:
        """More of stdin; empty at its end."""
        ...

    async def write(self, stream: int, data: bytes) -> None:
        """Output: stream 1 or 2."""
        ...

    async def resized(self) -> tuple[int, int]:
        """Waits for the terminal's next size: columns, rows. Never returns where there is no terminal."""
        ...


Changed = Callable[[Uid], object]


class Backend(Protocol):
    @property
    def name(self) -> str:
        """As in `--backend` and RuntimeClass."""
        ...

    @property
    def revives(self) -> bool:
        """Whether pods come back as they were when this process is started again: they have no processes to lose, or those
        outlive us. If not, a pod that must not be restarted is over, and `start` is not ordered."""
        ...

    async def probe(self) -> Probe:
        """Really starts something small and takes it away again. May be called at any time, also before `open`."""
        ...

    async def open(self, changed: Changed) -> None:
        """Called once, before anything but `probe`. Finds the pods that survived an earlier process, or reaps what is left
        of them: when it returns, `running` is complete and nothing beyond it runs. What pods wrote (logs, volumes) may stay
        for a while, for those that are started again. From then on `changed` is called, on the event loop, after each step
        in which the answer of `look` becomes another one."""
        ...

    async def close(self) -> None:
        """The last call: nothing is called back any more, no task or timer of this process is left. Pods that can outlive the
        process do; the others are gone. May be followed by `open`."""
        ...

    def look(self, uid: Uid) -> Running | None:
        """From memory, at once. None: nothing of this pod is left (no process, no file, no address)."""
        ...

    def running(self) -> Collection[Running]:
        """Every pod for which `look` is not None, as of now."""
        ...

    async def start(self, workload: Workload) -> None:
        """Takes the pod over: `look` is not None when this returns. Ordered again, it changes nothing. When it raises or is
        cancelled, nothing is left behind. After a crash in the middle, `open` finds the pod whole or not at all."""
        ...

    async def restart(self, uid: Uid, container: str) -> None:
        """Starts a container that has ended once more; its `restarts` goes up. Nothing happens to one that has not ended or
        in a pod that is stopping. UnknownPod if there is no such pod or container. Init containers that failed are restarted
        like this, too; what comes after them goes on when they have succeeded (or, if they are sidecars, have started)."""
        ...

    async def end(self, uid: Uid, container: str, grace: float) -> None:
        """Ends one container, politely and by force after `grace` seconds; the pod stays, and the container shows as Exit.
        Ordered again, the earlier end counts. Nothing happens to one that does not run or in a pod that is stopping.
        UnknownPod if there is no such pod or container."""
        ...

    async def reclaim(self, workload: Workload) -> None:
        """The pod is over: ends at once what still runs, and takes back its sandbox, volumes (claims are kept), images and address. Its
        logs stay until it is stopped, and `look` says `reclaimed` when nothing else is left. A pod that is not here, because an
        earlier process ran it, is taken over like that, `was` telling how it ended: nothing of it is started. An obstacle is tried
        again; nothing is restarted meanwhile, and `stop` works as ever. Ordered again, it changes nothing."""
        ...

    async def stop(self, uid: Uid, grace: float) -> None:
        """Ends the pod: politely, by force after `grace` seconds, and then takes everything of it away, until `look` is None.
        Its `address` may then be given to another one. Ordered again, the earlier end counts; of an unknown pod, nothing
        happens. It may come at any time, also while the pod is starting or paused, and cannot fail for good: a
        backend that meets an obstacle raises BackendError and goes on when it is ordered again."""
        ...

    async def pause(self, uid: Uid) -> None:
        """Freezes the pod; memory and address stay. Paused again, nothing happens. UnknownPod if it is not here."""
        ...

    async def resume(self, uid: Uid) -> None:
        """The opposite, on the same terms."""
        ...

    async def exec(self, uid: Uid, container: str, command: Command, streams: Streams) -> Exit:
        """Runs a command in a started container until it ends. Cancelled, it ends the command and all its children first.
        UnknownPod if the container is not there, BackendError if the command cannot be started."""
        ...

    async def attach(self, uid: Uid, container: str, streams: Streams) -> Exit:
        """The streams of a started container's own process, until it ends. Cancelled, it only lets go. Errors as in `exec`."""
        ...

    async def dial(self, uid: Uid, port: int) -> socket.socket:
        """A connection to a TCP port inside: connected, non-blocking, the caller's. BackendError "ConnectionRefused" if
        nobody listens there, UnknownPod if the pod is not here."""
        ...

    async def connect(self, uid: Uid, container: str) -> socket.socket:
        """A connection to boxd in a started container: connected, non-blocking, the caller's. Errors as in `exec`, and
        Unsupported where there is no boxd."""
        ...

    def relabel(self, uid: Uid, labels: Mapping[str, str]) -> None:
        """The pod's labels are these now: what follows from them for its network holds from now on. Of an unknown pod,
        nothing happens."""
        ...

    async def refresh(self, uid: Uid, volumes: Sequence[VolumeSpec]) -> None:
        """The files of these volumes have changed: those that show what the API holds are replaced in running containers,
        too; all others stay as they are. Of an unknown pod, nothing happens."""
        ...

    def logs(
        self,
        uid: Uid,
        container: str,
        *,
        previous: bool = False,
        follow: bool = False,
        tail: int | None = None,
        since: datetime | None = None,
        timestamps: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[bytes]:
        """The output of a container, also of one that has ended, until `look` is None: as it was written, or with the time
        before each line. `tail` counts lines, `limit` bytes. At the first step UnknownPod, or BackendError "BadRequest" if the
        run that is asked for has not begun."""
        ...

    async def stats(self, uid: Uid) -> Stats:
        """What the pod uses now. UnknownPod if it is not here."""
        ...
