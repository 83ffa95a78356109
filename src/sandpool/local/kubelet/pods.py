"""Pods as a kubelet reads them: what to run, typed; the status as it is, because every field of it may be somebody's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from sandpool.local.backends.base import WorkloadSpec
from sandpool.model.kinds import PODS
from sandpool.model.metadata import Metadata, Model
from sandpool.model.resource import Resource

Json = dict[str, Any]


class ReadinessGate(Model, frozen=True):
    condition_type: str = ""


class SchedulingGate(Model, frozen=True):
    name: str = ""


class NodePodSpec(WorkloadSpec, frozen=True):
    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    restart_policy: str = "Always"
    readiness_gates: tuple[ReadinessGate, ...] = ()


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
