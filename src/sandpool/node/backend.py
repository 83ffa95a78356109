"""The contract between the kubelet and what runs pods, in the spirit of CRI. All backends pass one suite, tests/conformance/backends.

Its verbs are about pods (a sandbox with all its containers), about one container, and about streams, which it shares with the API
server (`model/pod_streams.py`). The backend is given what to run, reports the state with `pod_status`, and calls back when something has
changed. `start_pod`, `restart_container` and `stop_pod` return as soon as the backend has accepted them; the outcome shows in
`pod_status`. So no reconcile ever waits, and every call may be repeated.
All methods run on the event loop's thread. They raise NodeError (BackendError and those of the parts below) and nothing else.

Two implement it: node/pods, for every runtime of `runtimes/contract.py`, and `runtimes/fake.py`, which starts no process.
`runtime_choice.py` puts several behind one.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import msgspec

from sandpool.base.errors import NodeError
from sandpool.model.metadata import Key, Model, Uid
from sandpool.model.pod_streams import Command as Command
from sandpool.model.pod_streams import Exit as Exit
from sandpool.model.pod_streams import StreamingRuntime
from sandpool.model.pod_streams import Streams as Streams
from sandpool.node.images.image import Credential
from sandpool.node.volumes.spec import VolumeSpec


class BackendError(NodeError):
    """A call that failed."""


class Unsupported(BackendError):
    """This backend does not support the operation at all."""

    def __init__(self, backend: str, what: str) -> None:
        super().__init__("Unsupported", f"the backend {backend} cannot {what}; choose another backend")


class UnknownPod(BackendError):
    """No such pod or container runs here."""

    def __init__(self, uid: Uid, container: str = "") -> None:
        what = f"container {container!r} of pod {uid}" if container else f"pod {uid}"
        super().__init__("NotFound", f"{what} does not run here; look at the pod's status")


ADDRESS = "\0address\0"
"""Placeholder for the pod's address in a value of `Workload.env`; the backend, which alone knows the address, replaces it."""


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
    """A container as a backend reads it. A field is added when a backend enforces it, not before. `env` is for the kubelet, which
    resolves its references: a backend uses `Workload.env`."""

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

    @property
    def sidecar(self) -> bool:
        """Whether an init container is a sidecar, which runs as long as the pod."""
        return self.restart_policy == "Always"


class WorkloadSpec(Model, frozen=True):
    """The part of a pod's spec that a backend reads."""

    hostname: str = ""
    security_context: PodSecurityContext = PodSecurityContext()
    runtime_class_name: str | None = None
    host_network: bool = False
    host_pid: bool = msgspec.field(name="hostPID", default=False)
    host_ipc: bool = msgspec.field(name="hostIPC", default=False)
    restart_policy: str = "Always"
    init_containers: tuple[ContainerSpec, ...] = ()
    containers: tuple[ContainerSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """One pod to run. `was` is its last known status, if it ran before. A backend that has found the pod running (`PodStatus.found`)
    ignores `was`; one that `revives` restores the pod from it; any other starts the pod again, with the same address if
    possible, and its containers continue with the `restarts` and `last` of `was`."""

    uid: Uid
    key: Key
    spec: WorkloadSpec
    annotations: Mapping[str, str] = field(default_factory=dict)
    was: PodStatus | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict, repr=False
    )  # by container, with all references resolved
    volumes: tuple[VolumeSpec, ...] = ()
    credentials: tuple[Credential, ...] = ()

    @property
    def holder(self) -> str:
        """The name under which the pod holds images: its name, for listings, and its uid, because names are reused."""
        return f"{self.key} ({self.uid})"


# Status


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not started yet."""

    reason: str = "ContainerCreating"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    at: datetime
    ready: bool = False  # as far as the backend can tell, without probes


State = Waiting | Started | Exit

SANDBOX_LOST = "SandboxLost"
"""The reason of an exit that the container did not cause: the whole sandbox was ended from outside."""


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    name: str
    state: State
    id: str = ""
    restarts: int = 0
    last: Exit | None = None  # how the run before this one ended
    image_id: str = ""  # digest of the image that is used
    uncounted: int = 0  # restarts after an exit that the container did not cause; they do not count for its back-off


@dataclass(frozen=True, slots=True)
class PodStatus:
    """A snapshot of one pod, and the only view of it outside its backend. `address` is empty until one is assigned, then stays
    the same until the pod is reclaimed."""

    uid: Uid
    key: Key
    address: str = ""
    init: tuple[ContainerStatus, ...] = ()
    containers: tuple[ContainerStatus, ...] = ()
    stopping: bool = False
    paused: bool = False
    notes: tuple[str, ...] = ()  # for the user: ports that are mapped to others, sizes that are not enforced
    evicted: str = ""  # why the backend evicted it, as the message of a pod's status; it is stopping then, for good
    reclaimed: bool = False  # it has ended, and only its logs are left
    found: bool = False  # an earlier process started it; nothing in it is started again before `start_pod`


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether this backend works on this machine, and what it enforces: the result of a trial run."""

    available: bool
    reason: str = ""  # one word, when it is not available
    message: str = ""  # what is missing and what to do
    enforced: frozenset[str] = frozenset()  # "filesystem", "network", "memory", "pids", ...


@dataclass(frozen=True, slots=True)
class Stats:
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    processes: int = 0


Changed = Callable[[Uid], object]


class Backend(StreamingRuntime, Protocol):
    @property
    def name(self) -> str:
        """As in `--backend` and RuntimeClass."""
        ...

    @property
    def revives(self) -> bool:
        """Whether pods are restored as they were when this process restarts, because they have no processes or their processes outlive
        this one. If not, a pod whose containers must not be restarted has ended, and `start_pod` is not called for it."""
        ...

    async def probe(self) -> Probe:
        """Tries the backend: starts a small sandbox and removes it. May be called at any time, also before `open`."""
        ...

    async def open(self, changed: Changed) -> None:
        """Called once, before anything but `probe`. Finds the pods that survived an earlier process, or removes what is left of
        them: when it returns, `list_pods` is complete and nothing else runs. What pods wrote (logs, volumes) may stay for a
        while, for those that are started again. From then on `changed` is called, on the event loop, after each step that
        changes the result of `pod_status`."""
        ...

    async def close(self) -> None:
        """The last call: no callback, task or timer remains. Pods that can outlive the process do; the others are gone. `open`
        may be called again."""
        ...

    # Pods

    def pod_status(self, uid: Uid) -> PodStatus | None:
        """From memory, at once. None: nothing of this pod is left (no process, no file, no address)."""
        ...

    def list_pods(self) -> Collection[PodStatus]:
        """Every pod whose `pod_status` is not None."""
        ...

    async def start_pod(self, workload: Workload) -> None:
        """Accepts the pod: `pod_status` is not None when this returns. Repeated, it changes nothing. If it raises or is cancelled,
        nothing is left behind. After a crash in the middle, `open` finds the pod whole or not at all."""
        ...

    async def stop_pod(self, uid: Uid, grace: float) -> None:
        """Stops the pod, by force after `grace` seconds, and then removes everything of it, until `pod_status` is None. Its address
        may then be given to another pod. Repeated, the earlier deadline counts; for an unknown pod, nothing happens. It may be
        called at any time, also while the pod is starting or paused. A failure is never final: the backend raises BackendError, and
        continues when it is called again."""
        ...

    async def reclaim(self, workload: Workload) -> None:
        """Releases a pod that has ended: kills what still runs, and removes its sandbox, its volumes (claims are kept), its hold on
        images and its address. Its logs stay until `stop_pod`; `pod_status` says `reclaimed` when only they are left. A pod of an
        earlier process is accepted as well, with `was` saying how it ended; nothing of it is started. A failure is retried; nothing
        is restarted meanwhile, and `stop_pod` works as usual. Repeated, it changes nothing."""
        ...

    async def pause(self, uid: Uid) -> None:
        """Freezes the pod; memory and address stay. Repeated, nothing happens. UnknownPod if it is not here."""
        ...

    async def resume(self, uid: Uid) -> None:
        """Undoes `pause`. Repeated, nothing happens. UnknownPod if it is not here."""
        ...

    def relabel(self, uid: Uid, labels: Mapping[str, str]) -> None:
        """Sets the pod's labels; NetworkPolicies apply to them at once. For an unknown pod, nothing happens."""
        ...

    async def refresh(self, uid: Uid, volumes: Sequence[VolumeSpec]) -> None:
        """Replaces the files of volumes with content of the API (ConfigMap, Secret, downward API), also in running containers. Other
        volumes stay as they are. For an unknown pod, nothing happens."""
        ...

    async def stats(self, uid: Uid) -> Stats:
        """What the pod uses now. UnknownPod if it is not here."""
        ...

    # Containers

    async def restart_container(self, uid: Uid, container: str) -> None:
        """Restarts a container that has exited and increments its `restarts`. Nothing happens to one that has not exited, or in
        a pod that is being stopped. UnknownPod if there is no such pod or container. Init containers that failed are restarted
        like this, too; what follows them continues when they have succeeded (or, if they are sidecars, have started)."""
        ...

    async def stop_container(self, uid: Uid, container: str, grace: float) -> None:
        """Stops one container, by force after `grace` seconds; the pod stays, and the container shows as Exit. Repeated, the
        earlier deadline counts. Nothing happens to one that does not run, or in a pod that is being stopped. UnknownPod if
        there is no such pod or container."""
        ...

    async def connect(self, uid: Uid, container: str) -> socket.socket:
        """Connects to boxd in a started container. The socket is non-blocking and the caller's. Errors as in `exec`, and
        Unsupported where there is no boxd."""
        ...
