"""Pods as the kubelet reads and caches them: the spec is typed, the status is raw JSON, because others may own fields of it.

`PodTransform` is the transform of the kubelet's pod cache. To save memory, pods of one template share the spec, and the status except for
the address and the container ids. Pods of a pool become ready together, so most of their timestamps are equal, too. Objects are never
changed in place, so sharing is safe.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import msgspec

from sandpool.model.kinds import PODS
from sandpool.model.labels import TEMPLATE_REF_HASH
from sandpool.model.metadata import Metadata, Model
from sandpool.model.resource import Resource
from sandpool.node.backend import ContainerSpec, EnvVar, VolumeMount, WorkloadSpec
from sandpool.node.kubelet.sources import EnvFrom, ObjectRef, PodVolume, ValueFrom


class ExecAction(Model, frozen=True):
    command: tuple[str, ...] = ()


class HttpHeader(Model, frozen=True):
    name: str = ""
    value: str = ""


class HttpGetAction(Model, frozen=True):
    port: int | str = 0
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HttpHeader, ...] = ()


class TcpSocketAction(Model, frozen=True):
    port: int | str = 0
    host: str = ""


class SleepAction(Model, frozen=True):
    seconds: float = 0


class GrpcAction(Model, frozen=True):
    port: int = 0


Action = ExecAction | HttpGetAction | TcpSocketAction | SleepAction


class Handler(Model, frozen=True):
    """What a probe or hook does. The API server ensures that exactly one field is set."""

    exec: ExecAction | None = None
    http_get: HttpGetAction | None = None
    tcp_socket: TcpSocketAction | None = None
    sleep: SleepAction | None = None
    grpc: GrpcAction | None = None

    @property
    def action(self) -> Action | None:
        """The action; None if it is not supported (gRPC)."""
        return self.exec or self.http_get or self.tcp_socket or self.sleep


class ProbeSpec(Handler, frozen=True):
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Lifecycle(Model, frozen=True):
    post_start: Handler | None = None
    pre_stop: Handler | None = None


Json = dict[str, Any]


class ReadinessGate(Model, frozen=True):
    condition_type: str = ""


class SchedulingGate(Model, frozen=True):
    name: str = ""


class NodeEnvVar(EnvVar, frozen=True):
    value_from: ValueFrom | None = None


class NodeVolumeMount(VolumeMount, frozen=True):
    sub_path_expr: str = ""


class NodeContainer(ContainerSpec, frozen=True):
    """A container, with fields that only the kubelet reads."""

    env: tuple[NodeEnvVar, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    volume_mounts: tuple[NodeVolumeMount, ...] = ()
    startup_probe: ProbeSpec | None = None
    liveness_probe: ProbeSpec | None = None
    readiness_probe: ProbeSpec | None = None
    lifecycle: Lifecycle | None = None

    @property
    def post_start(self) -> Handler | None:
        return self.lifecycle.post_start if self.lifecycle is not None else None

    @property
    def pre_stop(self) -> Handler | None:
        return self.lifecycle.pre_stop if self.lifecycle is not None else None

    @property
    def probed(self) -> bool:
        """Whether a probe or a postStart hook must succeed before the container is ready."""
        return (
            self.readiness_probe is not None
            or self.liveness_probe is not None
            or self.startup_probe is not None
            or (self.lifecycle is not None and self.lifecycle.post_start is not None)
        )

    @property
    def handlers(self) -> tuple[tuple[str, Handler], ...]:
        """Probes and hooks by the name of their field."""
        found = (
            ("startupProbe", self.startup_probe),
            ("livenessProbe", self.liveness_probe),
            ("readinessProbe", self.readiness_probe),
            ("lifecycle.postStart", self.post_start),
            ("lifecycle.preStop", self.pre_stop),
        )
        return tuple((field, handler) for field, handler in found if handler is not None)


class NodePodSpec(WorkloadSpec, frozen=True):
    init_containers: tuple[NodeContainer, ...] = ()
    containers: tuple[NodeContainer, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    image_pull_secrets: tuple[ObjectRef, ...] = ()
    service_account_name: str = ""
    termination_grace_period_seconds: int | None = None
    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    readiness_gates: tuple[ReadinessGate, ...] = ()

    @property
    def all_containers(self) -> tuple[NodeContainer, ...]:
        return (*self.init_containers, *self.containers) if self.init_containers else self.containers

    @property
    def lasting(self) -> tuple[NodeContainer, ...]:
        """Containers that run as long as the pod: sidecars and the regular ones."""
        if not self.init_containers:
            return self.containers
        return (*(init for init in self.init_containers if init.sidecar), *self.containers)

    @property
    def grace(self) -> float:
        return 30.0 if self.termination_grace_period_seconds is None else float(self.termination_grace_period_seconds)


class NodePod(Model, frozen=True):
    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = "Pod"

    metadata: Metadata = Metadata()
    spec: NodePodSpec = NodePodSpec()
    status: Json = msgspec.field(default_factory=dict)

    @property
    def phase(self) -> str:
        phase: str = self.status.get("phase", "")
        return phase

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def acknowledged(self) -> bool:
        """Whether a kubelet has taken the pod."""
        return "startTime" in self.status


_ANY_PODS: Resource[Any] = PODS
NODE_PODS: Resource[NodePod] = replace(_ANY_PODS, type=NodePod)


_MOST = 1024  # templates
_MOST_BYTES = 4 * 1024 * 1024
"""Maximum encoded bytes of the example specs, which stay in memory when their pods are gone. Decoded they take about ten times as much."""

_encode = msgspec.json.Encoder().encode


class _Example(NamedTuple):
    spec: NodePodSpec
    status: Json


class PodTransform:
    def __init__(self) -> None:
        self.examples: dict[tuple[str, str], _Example] = {}  # the last pod of each template
        self._size = 0  # bytes of the specs added since `examples` was last cleared

    def __call__(self, pod: NodePod) -> NodePod:
        """An equal pod that shares parts with earlier pods of its template."""
        mark = pod.metadata.labels.get(TEMPLATE_REF_HASH)
        if mark is None:
            return pod
        place = (pod.metadata.namespace, mark)
        example = self.examples.get(place)
        if example is None or example.spec != pod.spec:
            self._remember(place, pod)
            return pod
        if not pod.acknowledged:  # its status will change soon, so comparing is not worthwhile
            return NodePod(metadata=pod.metadata, spec=example.spec, status=pod.status)
        kept = NodePod(metadata=pod.metadata, spec=example.spec, status=shared(pod.status, example.status))
        self.examples[place] = _Example(kept.spec, kept.status)
        return kept

    def _remember(self, place: tuple[str, str], pod: NodePod) -> None:
        size = len(_encode(pod.spec))
        self._size += size
        if len(self.examples) >= _MOST or self._size > _MOST_BYTES:
            self.examples.clear()
            self._size = size
        self.examples[place] = _Example(pod.spec, pod.status)


def shared(status: Json, example: Json) -> Json:
    """An equal status that reuses the parts of the example that are equal."""
    found = _reusing(status, example)
    containers, others = found.get("containerStatuses"), example.get("containerStatuses")
    if containers and others and containers is not others and len(containers) == len(others):
        found["containerStatuses"] = [_reusing(one, other) for one, other in zip(containers, others, strict=True)]
    return found


def _reusing(one: Json, other: Json) -> Json:
    get = other.get
    return {name: known if (known := get(name)) == value else value for name, value in one.items()}
