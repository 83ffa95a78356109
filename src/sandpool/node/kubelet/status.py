"""Computes the status that a pod should have from what the backend reports. Pure.

Fields and conditions that belong to others are kept. A pod that has succeeded or failed never leaves that phase.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sandpool.model import times
from sandpool.model.pod import Phase
from sandpool.node.backend import ContainerStatus, Exit, PodStatus, Started
from sandpool.node.kubelet import containers
from sandpool.node.kubelet.containers import Trouble
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.pods import Json, NodePod
from sandpool.node.kubelet.probe_state import Health
from sandpool.node.pods import restarts
from sandpool.node.pods.life import OVER, aim_of, incomplete, phase_of

READY_TO_START = "PodReadyToStartContainers"
INITIALIZED = "Initialized"
READY = "Ready"
CONTAINERS_READY = "ContainersReady"
SCHEDULED = "PodScheduled"
EVICTED = "Evicted"
NOTED = "sandpool.dev/Noted"
"""Condition that informs the user of a limitation, such as ports mapped to others or sizes that are not enforced."""
OURS = (READY_TO_START, INITIALIZED, READY, CONTAINERS_READY, SCHEDULED)
NO_PROBES: Mapping[str, Health] = {}

_Verdict = tuple[str, bool, str, str]  # type, whether it holds, reason, message


def accepted(pod: NodePod, host: str, trouble: Trouble | None, now: datetime) -> Json:
    """The status of a pod that this node has accepted and that does not run yet."""
    phase = (
        Phase.RUNNING if pod.phase == Phase.RUNNING else Phase.PENDING
    )  # a pod that ran does not become pending again
    waiting = "PodInitializing" if pod.spec.init_containers else "ContainerCreating"
    return _complete(
        pod,
        {
            "phase": phase.value,
            "initContainerStatuses": containers.creating(
                pod.spec.init_containers, "PodInitializing", trouble, pod.status.get("initContainerStatuses") or ()
            ),
            "containerStatuses": containers.creating(
                pod.spec.containers, waiting, trouble, pod.status.get("containerStatuses") or ()
            ),
        },
        _verdicts(pod, None, phase),
        host,
        now,
    )


def running(
    pod: NodePod, seen: PodStatus, host: str, pace: Pace, now: datetime, health: Mapping[str, Health] = NO_PROBES
) -> Json:
    """The status of a pod that the backend has."""
    seen = containers.with_health(seen, health)
    starting = {name for name, known in health.items() if not known.started} if health else set()
    phase = phase_of(seen, pod.spec)
    if phase is Phase.PENDING and pod.phase == Phase.RUNNING:
        phase = Phase.RUNNING
    over = phase in OVER
    initializing = bool(incomplete(seen, pod.spec, starting))
    context = containers.StatusContext(pod, pace, now, starting, initializing, final=over)
    fields: Json = {
        "phase": phase.value,
        "initContainerStatuses": containers.init_statuses(context, pod.spec.init_containers, seen.init),
        "containerStatuses": containers.statuses(context, pod.spec.containers, seen.containers),
    }
    if seen.address:
        fields |= {"podIP": seen.address, "podIPs": [{"ip": seen.address}]}
    return _complete(pod, fields, _verdicts(pod, seen, phase, starting), host, now)


def ended(pod: NodePod, host: str, now: datetime) -> Json:
    """The status of a terminating pod of which only the object is left, held by finalizers."""
    return _over(pod, Exit(137, now), host, now)


def lost(pod: NodePod, host: str, now: datetime) -> Json:
    """The status of a pod that must not be restarted and whose processes ended with an earlier `sandpool up`."""
    status = _over(pod, restarts.lost(None, now), host, now)
    words = (
        "sandpool was restarted, and the processes of this pod ended with it; restartPolicy Never keeps it from starting "
        "again. Delete the pod; a Sandbox gets a new one then"
    )
    return {**status, "reason": restarts.SANDPOOL_RESTARTED, "message": words}


def completed(pod: NodePod, host: str, now: datetime) -> Json | None:
    """The final status of a pod whose processes ended with an earlier `sandpool up`, if only its sidecars were still running; else None."""
    was = containers.read_back(pod)
    if was is None or aim_of(was, pod.spec) not in OVER:
        return None
    return running(pod, restarts.all_lost(was, now), host, Pace(), now)


def evicted(pod: NodePod, host: str, why: str, now: datetime) -> Json:
    """The status of a pod that this node has evicted because it used too much disk."""
    status = _over(pod, Exit(137, now, reason=EVICTED, message=why.strip()), host, now)
    return {**status, "phase": Phase.FAILED.value, "reason": EVICTED, "message": why}


def _over(pod: NodePod, end: Exit, host: str, now: datetime) -> Json:
    """The status of a pod with no running containers. Those that had not ended before have ended with `end`."""
    known = containers.read_back(pod)
    parts = known.containers if known is not None else ()
    final = tuple(c if isinstance(c.state, Exit) else _ended(c, end) for c in parts)
    names = {container.name for container in final}
    final += tuple(ContainerStatus(c.name, end) for c in pod.spec.containers if c.name not in names)
    context = containers.StatusContext(pod, Pace(), now, final=True)
    fields: Json = {
        "phase": Phase.FAILED.value if any(_code(c) for c in final) else Phase.SUCCEEDED.value,
        "containerStatuses": containers.statuses(context, pod.spec.containers, final),
    }
    seen = PodStatus(pod.metadata.uid, pod.metadata.key, init=known.init if known else (), containers=final)
    return _complete(pod, fields, _verdicts(pod, seen, Phase(fields["phase"])), host, now)


def unschedulable(pod: NodePod, reason: str, message: str, now: datetime) -> Json:
    """The status of a pod that cannot be placed on a node, with the reason."""
    return {**pod.status, "conditions": _conditions(pod, [(SCHEDULED, False, reason, message)], now)}


def difference(pod: NodePod, status: Json) -> Json:
    """The fields to write; empty if there is no difference."""
    return {name: value for name, value in status.items() if pod.status.get(name) != value}


def ready_differs(pod: NodePod, status: Json) -> bool:
    """Whether readiness differs; a pod without the condition counts as not ready."""
    return (_truth(pod.status, READY) == "True") != (_truth(status, READY) == "True")


def scheduled(pod: NodePod) -> bool:
    return _truth(pod.status, SCHEDULED) == "True"


def foreign(pod: NodePod) -> list[Json]:
    """Conditions that others maintain on the pod."""
    return [
        condition for condition in pod.status.get("conditions") or () if condition.get("type") not in (*OURS, NOTED)
    ]


def _complete(pod: NodePod, fields: Json, verdicts: Sequence[_Verdict], host: str, now: datetime) -> Json:
    if not fields.get("initContainerStatuses"):
        fields.pop("initContainerStatuses", None)
    status = {**pod.status, **fields, "conditions": _conditions(pod, verdicts, now)}
    status |= {"hostIP": host, "hostIPs": [{"ip": host}]}
    status.setdefault("startTime", times.seconds(now))
    return status


def _verdicts(pod: NodePod, seen: PodStatus | None, phase: Phase, starting: Container[str] = ()) -> list[_Verdict]:
    completed = phase is Phase.SUCCEEDED
    unfinished = [] if completed else incomplete(seen, pod.spec, starting)
    unready = [c.name for c in pod.spec.lasting if not _container_ready(seen, c.name)]
    all_ready = not unready and phase is Phase.RUNNING
    why, what = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    if completed:
        why, what = "PodCompleted", ""
    gates = _open_gates(pod) if pod.spec.readiness_gates else []
    ready_why, ready_what = why, what
    if all_ready and gates:
        gated = [f'corresponding condition of pod readiness gate "{gate}" is not "True".' for gate in gates]
        ready_why, ready_what = "ReadinessGatesNotReady", " ".join(gated)
    missing = f"containers with incomplete status: [{' '.join(unfinished)}]"
    found = [
        (READY_TO_START, seen is not None and bool(seen.address) and phase in (Phase.PENDING, Phase.RUNNING), "", ""),
        (INITIALIZED, not unfinished, "ContainersNotInitialized", missing),
        (READY, all_ready and not gates, ready_why, ready_what),
        (CONTAINERS_READY, all_ready, why, what),
        (SCHEDULED, True, "", ""),
    ]
    if seen is not None and seen.notes:
        found.append((NOTED, True, "Limitations", "; ".join(seen.notes)))
    return found


def _open_gates(pod: NodePod) -> list[str]:
    """Readiness gates: conditions that others have yet to set before the pod is ready."""
    types = [gate.condition_type for gate in pod.spec.readiness_gates]
    return [type_ for type_ in types if _truth(pod.status, type_) != "True"]


def _conditions(pod: NodePod, verdicts: Sequence[_Verdict], now: datetime) -> list[Json]:
    """All conditions, ours first in the usual order. Each keeps the time at which its status last changed."""
    known = {condition.get("type"): condition for condition in pod.status.get("conditions") or ()}
    at = times.seconds(now)
    made: list[Json] = []
    for type_, holds, reason, message in verdicts:
        truth = "True" if holds else "False"
        if holds and type_ != NOTED:
            reason = message = ""
        old = known.pop(type_, None)
        if old is not None and _same(old, truth, reason, message):
            made.append(old)
            continue
        since = old.get("lastTransitionTime") if old is not None and old.get("status") == truth else None
        condition: Json = {"type": type_, "status": truth, "lastTransitionTime": since or at}
        if reason:
            condition["reason"] = reason
        if message:
            condition["message"] = message
        made.append(condition)
    return [*made, *known.values()]


def _same(old: Json, truth: str, reason: str, message: str) -> bool:
    return (
        old.get("status") == truth
        and (old.get("reason") or "") == reason
        and (old.get("message") or "") == message
        and bool(old.get("lastTransitionTime"))
    )


def _truth(status: Json, type_: str) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == type_:
            truth: str = condition.get("status", "")
            return truth
    return ""


def _container_ready(seen: PodStatus | None, name: str) -> bool:
    if seen is not None:
        for container in (*seen.containers, *seen.init) if seen.init else seen.containers:
            if container.name == name:
                return isinstance(container.state, Started) and container.state.ready
    return False


def _ended(container: ContainerStatus, end: Exit) -> ContainerStatus:
    started = container.state.at if isinstance(container.state, Started) else None
    return replace(container, state=replace(end, started_at=started))


def _code(container: ContainerStatus) -> int:
    return container.state.code if isinstance(container.state, Exit) else 0
