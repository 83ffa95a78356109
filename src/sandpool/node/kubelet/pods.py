"""Pods as a kubelet reads them: what to run, typed; the status as it is, because every field of it may be somebody's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from sandpool.model.kinds import PODS
from sandpool.model.metadata import Metadata, Model
from sandpool.model.resource import Resource
from sandpool.node.backend import ContainerSpec, EnvVar, VolumeMount, WorkloadSpec
from sandpool.node.kubelet.probe_spec import Handler, Lifecycle, ProbeSpec
from sandpool.node.kubelet.sources import EnvFrom, ObjectRef, PodVolume, ValueFrom

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
    """A container with what only the kubelet reads."""

    env: tuple[NodeEnvVar, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    volume_mounts: tuple[NodeVolumeMount, ...] = ()
    startup_probe: ProbeSpec | None = None
    liveness_probe: ProbeSpec | None = None
    readiness_probe: ProbeSpec | None = None
    lifecycle: Lifecycle | None = None

    @property
    def sidecar(self) -> bool:
        """Of an init container: it runs as long as the pod does."""
        return self.restart_policy == "Always"

    @property
    def post_start(self) -> Handler | None:
        return self.lifecycle.post_start if self.lifecycle is not None else None

    @property
    def pre_stop(self) -> Handler | None:
        return self.lifecycle.pre_stop if self.lifecycle is not None else None

    @property
    def tended(self) -> bool:
        """Whether somebody must ask how it is before it counts as ready."""
        return (
            self.readiness_probe is not None
            or self.liveness_probe is not None
            or self.startup_probe is not None
            or (self.lifecycle is not None and self.lifecycle.post_start is not None)
        )

    @property
    def handlers(self) -> tuple[tuple[str, Handler], ...]:
        """Its probes and hooks, by the name of their field."""
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
    restart_policy: str = "Always"
    readiness_gates: tuple[ReadinessGate, ...] = ()

    @property
    def all_containers(self) -> tuple[NodeContainer, ...]:
        return (*self.init_containers, *self.containers) if self.init_containers else self.containers

    @property
    def lasting(self) -> tuple[NodeContainer, ...]:
        """Those that are meant to run as long as the pod."""
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
        """A kubelet has taken it."""
        return "startTime" in self.status


_ANY_PODS: Resource[Any] = PODS
NODE_PODS: Resource[NodePod] = replace(_ANY_PODS, type=NodePod)
