"""Plans what the kubelet does next about one pod: bind it, have the backend start or stop it, publish its status, delete it. Pure.

The view contains everything that the decision depends on; there is no I/O, no clock and no logging. node/pods/life.py decides about the
containers of a running pod. Steps are carried out in order. Each is idempotent, so a step that fails is planned again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from sandpool.model.metadata import Uid
from sandpool.model.pod import Phase
from sandpool.node.backend import PodStatus, Workload
from sandpool.node.kubelet import status
from sandpool.node.kubelet.containers import Trouble, last_known, read_back
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.placement import DISK_PRESSURE, NodeFacts, handler_of, why_not_here, why_not_run
from sandpool.node.kubelet.pods import Json, NodePod, NodePodSpec
from sandpool.node.kubelet.probe_state import Health
from sandpool.node.pods.life import Order, orders
from sandpool.node.pods.restarts import after_restart, all_lost


class PodView(Struct, frozen=True):
    """Everything about one pod name, read once. `pod` is None if it does not exist or belongs to another node."""

    pod: NodePod | None
    seen: PodStatus | None = None  # what the backend has of this pod
    strays: tuple[PodStatus, ...] = ()  # what the backend has of earlier pods of that name
    node: NodeFacts | None = None  # None: not registered yet
    host: str = ""
    binding: bool = False  # we have bound it, but the cache does not show that yet
    trouble: Trouble | None = None
    held_since: datetime | None = None  # since when a status difference has been waiting
    health: Mapping[str, Health] = status.NO_PROBES  # of the running containers that have probes
    relabelled: bool = False  # the labels differ from what the backend has, or that is unknown
    evicted: str = ""  # why the backend evicted it
    revives: bool = True  # whether the backend restores pods as they were


class Bind(Struct, frozen=True):
    def __str__(self) -> str:
        return "bind"


class Start(Struct, frozen=True):
    workload: Workload

    def __str__(self) -> str:
        return "start" if self.workload.was is None else "start as it was"


class Reclaim(Struct, frozen=True):
    """Releases everything but the logs of a pod that has ended."""

    workload: Workload

    def __str__(self) -> str:
        return "reclaim all but logs"


class Stop(Struct, frozen=True):
    uid: Uid
    grace: float

    def __str__(self) -> str:
        return f"stop within {self.grace:g} s"


class Relabel(Struct, frozen=True):
    uid: Uid
    labels: Mapping[str, str]

    def __str__(self) -> str:
        return "relabel"


class Publish(Struct, frozen=True):
    """Writes the status fields that differ."""

    fields: Json

    def __str__(self) -> str:
        return f"publish {', '.join(self.fields)}"


class Delete(Struct, frozen=True):
    """The last step of a graceful deletion."""

    def __str__(self) -> str:
        return "delete"


Step = Bind | Start | Order | Relabel | Reclaim | Stop | Publish | Delete


class Plan(Struct, frozen=True):
    steps: tuple[Step, ...] = ()
    again_at: datetime | None = None
    holds: bool = False  # a status difference waits to be written with others


def plan_pod(view: PodView, pace: Pace, now: datetime) -> Plan:
    """Plans first for what is left of earlier pods of the name, then for this pod."""
    plan = _plan_own(view, pace, now)
    strays = tuple(Stop(stray.uid, 0.0) for stray in view.strays)
    return Plan((*strays, *plan.steps), plan.again_at, plan.holds) if strays else plan


def _plan_own(view: PodView, pace: Pace, now: datetime) -> Plan:
    match view:
        case PodView(pod=None):
            return Plan()
        case PodView(pod=NodePod() as pod) if not pod.spec.node_name:
            return _schedule(view, pod, now)
        case PodView(pod=NodePod() as pod) if pod.metadata.leaving:
            return _terminate(view, pod, now)
        case PodView(pod=NodePod(finished=True) as pod):
            return _finish(view, pod, now)
        case PodView(pod=NodePod() as pod, evicted=str(why)) if why:
            return Plan(_publish(pod, status.evicted(pod, view.host, why, now)))
        case PodView(pod=NodePod() as pod, seen=None):
            return _admit(view, pod, pace, now)
        case PodView(pod=NodePod() as pod, seen=PodStatus() as seen):
            return _sync(view, pod, seen, pace, now)
    raise AssertionError(view)


def _schedule(view: PodView, pod: NodePod, now: datetime) -> Plan:
    if view.binding or view.node is None or pod.metadata.leaving:
        return Plan()
    refusal = why_not_here(pod, view.node)
    if refusal is None:
        return Plan((Bind(),))
    return Plan(_publish(pod, status.unschedulable(pod, *refusal, now)))


def _terminate(view: PodView, pod: NodePod, now: datetime) -> Plan:
    meta = pod.metadata
    if view.seen is not None:
        assert meta.deletion_timestamp is not None
        return Plan((Stop(meta.uid, max(0.0, (meta.deletion_timestamp - now).total_seconds())),))
    if meta.deletion_grace_period_seconds:
        return Plan((Delete(),))
    if pod.finished:
        return Plan()
    return Plan(
        _publish(pod, status.ended(pod, view.host, now))
    )  # finalizers hold the object; removing the last one deletes it


def _finish(view: PodView, pod: NodePod, now: datetime) -> Plan:
    """Plans for a pod that has finished. Only the stored phase decides that: quotas use it, and after a restart nothing else is known."""
    if view.seen is None:
        gone = bool(view.evicted)  # an eviction also removes the logs
        return Plan() if gone else Plan((Reclaim(remains_of(pod, view.node, now)),))
    return Plan() if view.seen.reclaimed else Plan((Reclaim(remains_of(pod, view.node, None)),))


def _admit(view: PodView, pod: NodePod, pace: Pace, now: datetime) -> Plan:
    ran = pod.phase == Phase.RUNNING and not view.revives
    final = status.completed(pod, view.host, now) if ran else None
    if final is not None:
        return Plan(_publish(pod, final))
    refusal = why_not_run(pod, view.node)
    if refusal is not None:
        obstacle = Trouble("FailedCreatePodSandBox", refusal, now)
        return Plan(_publish(pod, status.accepted(pod, view.host, obstacle, now)))
    if view.node is not None and view.node.pressure:
        obstacle = Trouble(DISK_PRESSURE, view.node.pressure, now)
        published = _publish(pod, status.accepted(pod, view.host, obstacle, now))
        return Plan(published, now + timedelta(seconds=pace.pressure))
    if ran and pod.spec.restart_policy == "Never":
        return Plan(_publish(pod, status.lost(pod, view.host, now)))
    trouble = view.trouble
    start = (Start(workload_of(pod, view.node, now if ran else None)),)
    if trouble is None:  # publish acceptance together with the outcome, unless that takes long
        return Plan(start) if pod.acknowledged else Plan(start, now + timedelta(seconds=pace.first_word), holds=True)
    published = _publish(pod, status.accepted(pod, view.host, trouble, now))
    return Plan((*start, *published)) if trouble.retry_at <= now else Plan(published, trouble.retry_at)


def _sync(view: PodView, pod: NodePod, seen: PodStatus, pace: Pace, now: datetime) -> Plan:
    """Plans for a pod that the backend has: restarts and stops of its containers, and its status."""
    steps: list[Step] = [Relabel(seen.uid, pod.metadata.labels)] if view.relabelled else []
    grace = pod.spec.grace
    failed = {
        name: grace if health.failure.grace is None else health.failure.grace
        for name, health in view.health.items()
        if health.failure is not None
    }
    due, moments = orders(seen, pod.spec, failed, grace, pace, now)
    steps += due
    if seen.found:  # it runs since an earlier process, and can start nothing before it gets what only the API knows
        if view.trouble is None or view.trouble.retry_at <= now:
            steps.append(Start(workload_of(pod, view.node)))
        else:
            moments.append(view.trouble.retry_at)
    wanted = status.running(pod, seen, view.host, pace, now, view.health)
    published = _publish(pod, wanted)
    holds = False
    if published and not _urgent(pod, wanted):
        at = (view.held_since or now) + timedelta(seconds=pace.settle if pod.acknowledged else pace.first_word)
        holds = at > now
        if holds:
            moments.append(at)
            published = ()
    return Plan((*steps, *published), min(moments, default=None), holds)


def _urgent(pod: NodePod, wanted: Json) -> bool:
    """Whether others wait for this difference: the pod became ready or unready, or has ended."""
    return status.ready_differs(pod, wanted) or wanted["phase"] in ("Succeeded", "Failed")


def _publish(pod: NodePod, wanted: Json) -> tuple[Step, ...]:
    fields = status.difference(pod, wanted)
    return (Publish(fields),) if fields else ()


def workload_of(pod: NodePod, node: NodeFacts | None, lost_at: datetime | None = None) -> Workload:
    """The workload, as far as the pod itself defines it. `lost_at` is set if the pod ran before and its processes are gone."""
    meta, was = pod.metadata, read_back(pod)
    if was is not None and lost_at is not None:
        was = after_restart(was, pod.spec, lost_at)
    return Workload(meta.uid, meta.key, _spec_of(pod, node), meta.annotations, was)


def remains_of(pod: NodePod, node: NodeFacts | None, lost_at: datetime | None) -> Workload:
    """The workload of a finished pod. `lost_at` is set if an earlier process ran it, and only the API knows how each container ended."""
    meta = pod.metadata
    was = None if lost_at is None else all_lost(last_known(pod), lost_at)
    return Workload(meta.uid, meta.key, _spec_of(pod, node), meta.annotations, was)


def _spec_of(pod: NodePod, node: NodeFacts | None) -> NodePodSpec:
    handler = handler_of(pod, node)
    return pod.spec if handler == pod.spec.runtime_class_name else replace(pod.spec, runtime_class_name=handler)
