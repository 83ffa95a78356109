"""What a pod of this node needs next. Pure: no I/O, no clock, no logging.

The view is everything that the decision may depend on. Steps are carried out in order; each may be repeated without harm,
so a step that fails is simply planned again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sandpool.local.backends.base import Exit, Running, Workload
from sandpool.local.kubelet import status
from sandpool.local.kubelet.bind import NodeFacts, why_not_here
from sandpool.local.kubelet.containers import Trouble, read_back
from sandpool.local.kubelet.options import Pace
from sandpool.local.kubelet.pods import Json, NodePod
from sandpool.local.kubelet.restarts import due_at, restarts
from sandpool.model.metadata import Uid


@dataclass(frozen=True, slots=True)
class PodView:
    """One name, read once. `pod` is None if there is none, or none that concerns this node."""

    pod: NodePod | None
    seen: Running | None = None  # what the backend has of this pod
    strays: tuple[Running, ...] = ()  # what it has of earlier pods of the name
    node: NodeFacts | None = None  # None: not registered yet
    host: str = ""
    binding: bool = False  # we have placed it and have not seen that yet
    trouble: Trouble | None = None
    held_since: datetime | None = None  # since when a status difference has been waiting


@dataclass(frozen=True, slots=True)
class Bind:
    def __str__(self) -> str:
        return "bind"


@dataclass(frozen=True, slots=True)
class Start:
    workload: Workload

    def __str__(self) -> str:
        return "start" if self.workload.was is None else "start as it was"


@dataclass(frozen=True, slots=True)
class Restart:
    uid: Uid
    container: str

    def __str__(self) -> str:
        return f"restart {self.container}"


@dataclass(frozen=True, slots=True)
class Stop:
    uid: Uid
    grace: float

    def __str__(self) -> str:
        return f"stop within {self.grace:g} s"


@dataclass(frozen=True, slots=True)
class Publish:
    """Fields of the status that differ."""

    fields: Json

    def __str__(self) -> str:
        return f"publish {', '.join(self.fields)}"


@dataclass(frozen=True, slots=True)
class Delete:
    """The last step of a graceful end."""

    def __str__(self) -> str:
        return "delete"


Step = Bind | Start | Restart | Stop | Publish | Delete


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...] = ()
    again_at: datetime | None = None
    holds: bool = False  # a status difference waits for company


def plan_pod(view: PodView, pace: Pace, now: datetime) -> Plan:
    """First what is left of others, then this pod."""
    plan = _plan_own(view, pace, now)
    strays = tuple(Stop(stray.uid, 0.0) for stray in view.strays)
    return Plan((*strays, *plan.steps), plan.again_at, plan.holds) if strays else plan


def _plan_own(view: PodView, pace: Pace, now: datetime) -> Plan:
    match view:
        case PodView(pod=None):
            return Plan()
        case PodView(pod=NodePod() as pod) if not pod.spec.node_name:
            return _place(view, pod, now)
        case PodView(pod=NodePod() as pod) if pod.metadata.leaving:
            return _leave(view, pod, now)
        case PodView(pod=NodePod(finished=True)):
            return Plan()
        case PodView(pod=NodePod() as pod, seen=None):
            return _start(view, pod, now)
        case PodView(pod=NodePod() as pod, seen=Running() as seen):
            return _keep(view, pod, seen, pace, now)
    raise AssertionError(view)


def _place(view: PodView, pod: NodePod, now: datetime) -> Plan:
    if view.binding or view.node is None or pod.metadata.leaving:
        return Plan()
    refusal = why_not_here(pod, view.node)
    if refusal is None:
        return Plan((Bind(),))
    return Plan(_said(pod, status.unschedulable(pod, *refusal, now)))


def _leave(view: PodView, pod: NodePod, now: datetime) -> Plan:
    meta = pod.metadata
    if view.seen is not None:
        assert meta.deletion_timestamp is not None
        return Plan((Stop(meta.uid, max(0.0, (meta.deletion_timestamp - now).total_seconds())),))
    if meta.deletion_grace_period_seconds:
        return Plan((Delete(),))
    if pod.finished:
        return Plan()
    return Plan(_said(pod, status.ended(pod, view.host, now)))  # held by finalizers; its last write removes it


def _start(view: PodView, pod: NodePod, now: datetime) -> Plan:
    steps: tuple[Step, ...] = ()
    if view.trouble is None or view.trouble.retry_at <= now:
        steps = (Start(workload_of(pod)),)
    if not pod.acknowledged or view.trouble is not None:
        steps += _said(pod, status.accepted(pod, view.host, view.trouble, now))
    return Plan(steps, view.trouble.retry_at if view.trouble is not None and not _starts(steps) else None)


def _starts(steps: tuple[Step, ...]) -> bool:
    return any(isinstance(step, Start) for step in steps)


def _keep(view: PodView, pod: NodePod, seen: Running, pace: Pace, now: datetime) -> Plan:
    """A pod that the backend has: restarts that are due, and the status."""
    steps: list[Step] = []
    moments: list[datetime] = []
    for container in seen.containers:
        state = container.state
        if isinstance(state, Exit) and not seen.stopping and restarts(pod.spec.restart_policy, state):
            due = due_at(container, state, pace)
            if due <= now:
                steps.append(Restart(seen.uid, container.name))
            else:
                moments.append(due)
    wanted = status.running(pod, seen, view.host, pace, now)
    said = _said(pod, wanted)
    holds = False
    if said and not _urgent(pod, wanted):
        at = (view.held_since or now) + timedelta(seconds=pace.settle)
        holds = at > now
        if holds:
            moments.append(at)
            said = ()
    return Plan((*steps, *said), min(moments, default=None), holds)


def _urgent(pod: NodePod, wanted: Json) -> bool:
    """Somebody waits for this difference: the pod was taken, became ready or unready, or is over."""
    return not pod.acknowledged or status.ready_differs(pod, wanted) or wanted["phase"] in ("Succeeded", "Failed")


def _said(pod: NodePod, wanted: Json) -> tuple[Step, ...]:
    fields = status.difference(pod, wanted)
    return (Publish(fields),) if fields else ()


def workload_of(pod: NodePod) -> Workload:
    meta = pod.metadata
    return Workload(meta.uid, meta.key, pod.spec, meta.annotations, read_back(pod))
