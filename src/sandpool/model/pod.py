"""The parts of Pod and Node that we read."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar

import msgspec

from sandpool.model.metadata import Metadata, Model


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class Container(Model, frozen=True):
    name: str = ""
    image: str = ""


class PodSpec(Model, frozen=True):
    """The fields of a pod's spec that controllers read. The node has its own type (node/kubelet/pods.py)."""

    node_name: str = ""
    restart_policy: str = ""
    runtime_class_name: str | None = None
    service_account_name: str = ""
    termination_grace_period_seconds: int | None = None
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()


class PodCondition(Model, frozen=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class PodIp(Model, frozen=True):
    ip: str = ""


class Waiting(Model, frozen=True):
    reason: str = ""
    message: str = ""


class Terminated(Model, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(Model, frozen=True):
    waiting: Waiting | None = None


class LastState(Model, frozen=True):
    terminated: Terminated | None = None


class ContainerStatus(Model, frozen=True):
    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: LastState = LastState()


class PodStatus(Model, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodIp, ...] = msgspec.field(default=(), name="podIPs")
    host_ip: str = msgspec.field(default="", name="hostIP")
    start_time: datetime | None = None
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


_ON_THEIR_WAY = ("", "ContainerCreating", "PodInitializing")
_BACK_AND_FORTH = {"ErrImagePull": "ImagePullBackOff"}  # a kubelet reports both in turn for the same problem
_LONGEST_DETAIL = 300  # characters; a registry's message may be of any length


class Pod(Model, frozen=True):
    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = "Pod"

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def condition(self, type_: str) -> PodCondition | None:
        for condition in self.status.conditions:
            if condition.type == type_:
                return condition
        return None

    @property
    def ready(self) -> bool:
        condition = self.condition("Ready")
        return condition is not None and condition.status == "True"

    @property
    def ips(self) -> tuple[str, ...]:
        return tuple([ip.ip for ip in self.status.pod_ips if ip.ip])

    @property
    def held_up(self) -> str:
        """Why the pod does not start: a container that cannot start, or no node for the pod. The text stays the same while the problem does.
        Empty if nothing is wrong."""
        for container in (*self.status.init_container_statuses, *self.status.container_statuses):
            waiting = container.state.waiting
            if waiting is None or waiting.reason in _ON_THEIR_WAY:
                continue
            reason, detail = (
                _BACK_AND_FORTH.get(waiting.reason, waiting.reason),
                _detail(waiting, container.last_state.terminated),
            )
            return f"container {container.name} waits: {reason}" + (f": {detail}" if detail else "")
        return "" if self.spec.node_name else self._unscheduled()

    def _unscheduled(self) -> str:
        scheduled = self.condition("PodScheduled")
        if scheduled is None or scheduled.status != "False":
            return ""
        return ": ".join(part for part in (scheduled.reason or "Unschedulable", scheduled.message) if part)


def _detail(waiting: Waiting, last: Terminated | None) -> str:
    """The details of a failure, without parts that change with each attempt."""
    text = waiting.message
    if waiting.reason == "CrashLoopBackOff":  # its message contains the delay, which changes
        text = _ended(last) if last is not None else ""
    if waiting.reason == "ImagePullBackOff":  # its message names the image and, in newer kubelets, the last error
        text = text.partition('": ')[2].removeprefix("ErrImagePull: ")
    return text if len(text) <= _LONGEST_DETAIL else f"{text[:_LONGEST_DETAIL]}..."


def _ended(last: Terminated) -> str:
    """How the last run ended. The message is stable only if the program could not be started; otherwise it is the program's own output."""
    if last.reason == "StartError" and last.message:
        return f"{last.reason}: {last.message}"
    return f"{last.reason or 'Error'}, exit code {last.exit_code}"


class Taint(Model, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Model, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Model, frozen=True):
    conditions: tuple[PodCondition, ...] = ()
    capacity: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    allocatable: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class Node(Model, frozen=True):
    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = "Node"

    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
