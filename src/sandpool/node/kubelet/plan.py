"""What a pod of this node needs next. Pure: no I/O, no clock, no logging.

The view is everything that the decision may depend on. Steps are carried out in order; each may be repeated without harm,
so a step that fails is simply planned again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from sandpool.model.metadata import Uid
from sandpool.model.pod import Phase
from sandpool.node.backend import Exit, Running, Workload
from sandpool.node.kubelet import status
from sandpool.node.kubelet.bind import DISK_PRESSURE, NodeFacts, handler_of, why_not_here, why_not_run
from sandpool.node.kubelet.containers import Trouble, last_known, read_back
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.pods import Json, NodePod, NodePodSpec
from sandpool.node.kubelet.probe_state import Health
from sandpool.node.kubelet.restarts import all_lost, due_at, gone_on, policy_of, restarts


class PodView(Struct, frozen=True):
    """One name, read once. `pod` is None if there is none, or none that concerns this node."""

    pod: NodePod | None
    seen: Running | None = None  # what the backend has of this pod
    strays: tuple[Running, ...] = ()  # what it has of earlier pods of the name
    node: NodeFacts | None = None  # None: not registered yet
    host: str = ""
    binding: bool = False  # we have placed it and have not seen that yet
    trouble: Trouble | None = None
    held_since: datetime | None = None  # since when a status difference has been waiting
    health: Mapping[str, Health] = status.NO_PROBES  # of the running containers that have probes
    relabelled: bool = False  # the backend knows other labels, or we do not know which
    evicted: str = ""  # why its backend has ended it for good
    revives: bool = True  # whether the backend brings pods back as they were


class Bind(Struct, frozen=True):
    def __str__(self) -> str:
        return "bind"


class Start(Struct, frozen=True):
    workload: Workload

    def __str__(self) -> str:
        return "start" if self.workload.was is None else "start as it was"


class Restart(Struct, frozen=True):
    uid: Uid
    container: str

    def __str__(self) -> str:
        return f"restart {self.container}"


class End(Struct, frozen=True):
    """One container, of a pod that stays."""

    uid: Uid
    container: str
    grace: float

    def __str__(self) -> str:
        return f"end {self.container} within {self.grace:g} s"


class Reclaim(Struct, frozen=True):
    """Everything but its logs, of a pod that is over."""

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
    """Fields of the status that differ."""

    fields: Json

    def __str__(self) -> str:
        return f"publish {', '.join(self.fields)}"


class Delete(Struct, frozen=True):
    """The last step of a graceful end."""

    def __str__(self) -> str:
        return "delete"


Step = Bind | Start | Restart | Relabel | End | Reclaim | Stop | Publish | Delete


class Plan(Struct, frozen=True):
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
        case PodView(pod=NodePod(finished=True) as pod):
            return _over(view, pod, now)
        case PodView(pod=NodePod() as pod, evicted=str(why)) if why:
            return Plan(_said(pod, status.evicted(pod, view.host, why, now)))
        case PodView(pod=NodePod() as pod, seen=None):
            return _start(view, pod, pace, now)
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


def _over(view: PodView, pod: NodePod, now: datetime) -> Plan:
    """The phase that is stored decides, and nothing else: quotas stop counting a pod by it, and after a restart it is what is known."""
    if view.seen is None:
        gone = bool(view.evicted)  # with its logs
        return Plan() if gone else Plan((Reclaim(remains_of(pod, view.node, now)),))
    return Plan() if view.seen.reclaimed else Plan((Reclaim(remains_of(pod, view.node, None)),))


def _start(view: PodView, pod: NodePod, pace: Pace, now: datetime) -> Plan:
    ran = pod.phase == Phase.RUNNING and not view.revives
    final = status.completed(pod, view.host, now) if ran else None
    if final is not None:
        return Plan(_said(pod, final))
    refusal = why_not_run(pod, view.node)
    if refusal is not None:
        obstacle = Trouble("FailedCreatePodSandBox", refusal, now)
        return Plan(_said(pod, status.accepted(pod, view.host, obstacle, now)))
    if view.node is not None and view.node.pressure:
        obstacle = Trouble(DISK_PRESSURE, view.node.pressure, now)
        said = _said(pod, status.accepted(pod, view.host, obstacle, now))
        return Plan(said, now + timedelta(seconds=pace.pressure))
    if ran and pod.spec.restart_policy == "Never":
        return Plan(_said(pod, status.lost(pod, view.host, now)))
    trouble = view.trouble
    start = (Start(workload_of(pod, view.node, now if ran else None)),)
    if trouble is None:  # that it was taken is told with what becomes of it, unless that takes long
        return Plan(start) if pod.acknowledged else Plan(start, now + timedelta(seconds=pace.first_word), holds=True)
    said = _said(pod, status.accepted(pod, view.host, trouble, now))
    return Plan((*start, *said)) if trouble.retry_at <= now else Plan(said, trouble.retry_at)


def _keep(view: PodView, pod: NodePod, seen: Running, pace: Pace, now: datetime) -> Plan:
    """A pod that the backend has: containers that are to end or to run again, and the status."""
    over = status.aim_of(seen, pod.spec) in status.OVER
    steps: list[Step] = [Relabel(seen.uid, pod.metadata.labels)] if view.relabelled else []
    steps += _endings(view, pod, seen, over)
    moments: list[datetime] = []
    for container in (*seen.init, *seen.containers) if not seen.stopping and not over else ():
        state = container.state
        if isinstance(state, Exit) and restarts(policy_of(pod.spec, container.name), state):
            due = due_at(container, state, pace)
            if due <= now:
                steps.append(Restart(seen.uid, container.name))
            else:
                moments.append(due)
    wanted = status.running(pod, seen, view.host, pace, now, view.health)
    said = _said(pod, wanted)
    holds = False
    if said and not _urgent(pod, wanted):
        at = (view.held_since or now) + timedelta(seconds=pace.settle if pod.acknowledged else pace.first_word)
        holds = at > now
        if holds:
            moments.append(at)
            said = ()
    return Plan((*steps, *said), min(moments, default=None), holds)


def _endings(view: PodView, pod: NodePod, seen: Running, over: bool) -> Iterator[End]:
    """Containers that failed their probes, and the sidecars of a pod that is over."""
    if seen.stopping:
        return
    if over:
        for name in status.running_sidecars(seen, pod.spec):
            yield End(seen.uid, name, pod.spec.grace)
        return
    for name, health in view.health.items():
        if health.doom is not None:
            yield End(seen.uid, name, pod.spec.grace if health.doom.grace is None else health.doom.grace)


def _urgent(pod: NodePod, wanted: Json) -> bool:
    """Somebody waits for this difference: the pod became ready or unready, or is over."""
    return status.ready_differs(pod, wanted) or wanted["phase"] in ("Succeeded", "Failed")


def _said(pod: NodePod, wanted: Json) -> tuple[Step, ...]:
    fields = status.difference(pod, wanted)
    return (Publish(fields),) if fields else ()


def workload_of(pod: NodePod, node: NodeFacts | None, lost_at: datetime | None = None) -> Workload:
    """What is to be run, as far as the pod itself says. `lost_at`: it ran before, and its processes are gone."""
    meta, was = pod.metadata, read_back(pod)
    if was is not None and lost_at is not None:
        was = gone_on(was, pod.spec, lost_at)
    return Workload(meta.uid, meta.key, _spec_of(pod, node), meta.annotations, was)


def remains_of(pod: NodePod, node: NodeFacts | None, lost_at: datetime | None) -> Workload:
    """A pod that is over. `lost_at`: an earlier process ran it, and only the API knows how each container ended."""
    meta = pod.metadata
    was = None if lost_at is None else all_lost(last_known(pod), lost_at)
    return Workload(meta.uid, meta.key, _spec_of(pod, node), meta.annotations, was)


def _spec_of(pod: NodePod, node: NodeFacts | None) -> NodePodSpec:
    handler = handler_of(pod, node)
    return pod.spec if handler == pod.spec.runtime_class_name else replace(pod.spec, runtime_class_name=handler)
