"""A pod's status: what it should say, given what the backend says. Pure.

Fields and conditions of others stay as they are. A pod that has succeeded or failed never leaves that phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sandpool.local.backends.base import Exit, Running, RunningContainer, Started
from sandpool.local.kubelet import containers
from sandpool.local.kubelet.containers import Trouble
from sandpool.local.kubelet.options import Pace
from sandpool.local.kubelet.pods import Json, NodePod
from sandpool.local.kubelet.restarts import restarts
from sandpool.model import times
from sandpool.model.pod import Phase

READY_TO_START = "PodReadyToStartContainers"
INITIALIZED = "Initialized"
READY = "Ready"
CONTAINERS_READY = "ContainersReady"
SCHEDULED = "PodScheduled"
OURS = (READY_TO_START, INITIALIZED, READY, CONTAINERS_READY, SCHEDULED)

_Verdict = tuple[str, bool, str, str]  # type, whether it holds, reason, message


def accepted(pod: NodePod, host: str, trouble: Trouble | None, now: datetime) -> Json:
    """The status of a pod that this node has taken and that does not run yet."""
    phase = Phase.RUNNING if pod.phase == Phase.RUNNING else Phase.PENDING  # a pod that ran is not pending again
    reason, message = (trouble.reason, trouble.message) if trouble is not None else ("", "")
    waiting = reason or ("PodInitializing" if pod.spec.init_containers else "ContainerCreating")
    return _complete(
        pod,
        {
            "phase": phase.value,
            "initContainerStatuses": containers.creating(
                pod.spec.init_containers, reason or "PodInitializing", message
            ),
            "containerStatuses": containers.creating(pod.spec.containers, waiting, message),
        },
        _verdicts(pod, None, phase),
        host,
        now,
    )


def running(pod: NodePod, seen: Running, host: str, pace: Pace, now: datetime) -> Json:
    """The status of a pod that the backend has."""
    phase = phase_of(seen, pod.spec.restart_policy)
    if phase is Phase.PENDING and pod.phase == Phase.RUNNING:
        phase = Phase.RUNNING
    fields: Json = {
        "phase": phase.value,
        "initContainerStatuses": containers.init_statuses(pod.spec.init_containers, seen.init),
        "containerStatuses": containers.statuses(
            pod.spec.containers, seen.containers, pod.spec.restart_policy, pace, now
        ),
    }
    if seen.address:
        fields |= {"podIP": seen.address, "podIPs": [{"ip": seen.address}]}
    return _complete(pod, fields, _verdicts(pod, seen, phase), host, now)


def ended(pod: NodePod, host: str, now: datetime) -> Json:
    """The status of a leaving pod of which nothing is left but the object, because finalizers hold it."""
    known = containers.read_back(pod)
    parts = known.containers if known is not None else ()
    final = tuple(container if isinstance(container.state, Exit) else _killed(container, now) for container in parts)
    names = {container.name for container in final}
    final += tuple(RunningContainer(c.name, Exit(137, now)) for c in pod.spec.containers if c.name not in names)
    fields: Json = {
        "phase": Phase.FAILED.value if any(_code(c) for c in final) else Phase.SUCCEEDED.value,
        "containerStatuses": containers.statuses(pod.spec.containers, final, "Never", Pace(), now),
    }
    seen = Running(pod.metadata.uid, pod.metadata.key, containers=final)
    return _complete(pod, fields, _verdicts(pod, seen, Phase(fields["phase"])), host, now)


def phase_of(seen: Running, policy: str) -> Phase:
    if not _initialized(seen.init):
        failed = any(isinstance(c.state, Exit) and c.state.code and not restarts(policy, c.state) for c in seen.init)
        return Phase.FAILED if failed else Phase.PENDING
    states = [container.state for container in seen.containers]
    if any(not isinstance(state, Started | Exit) for state in states):
        return Phase.PENDING
    ends = [state for state in states if isinstance(state, Exit)]
    if len(ends) < len(states) or any(restarts(policy, end) for end in ends):
        return Phase.RUNNING
    return Phase.FAILED if any(end.code for end in ends) else Phase.SUCCEEDED


def unschedulable(pod: NodePod, reason: str, message: str, now: datetime) -> Json:
    """The status of a pod that has no node, and why."""
    return {**pod.status, "conditions": _conditions(pod, [(SCHEDULED, False, reason, message)], now)}


def difference(pod: NodePod, status: Json) -> Json:
    """The fields that a write has to carry; empty: nothing to say."""
    return {name: value for name, value in status.items() if pod.status.get(name) != value}


def ready_differs(pod: NodePod, status: Json) -> bool:
    return _truth(pod.status, READY) != _truth(status, READY)


def foreign(pod: NodePod) -> list[Json]:
    """Conditions that somebody else keeps on the pod."""
    return [condition for condition in pod.status.get("conditions") or () if condition.get("type") not in OURS]


def _complete(pod: NodePod, fields: Json, verdicts: Sequence[_Verdict], host: str, now: datetime) -> Json:
    if not fields.get("initContainerStatuses"):
        fields.pop("initContainerStatuses", None)
    status = {**pod.status, **fields, "conditions": _conditions(pod, verdicts, now)}
    status |= {"hostIP": host, "hostIPs": [{"ip": host}]}
    status.setdefault("startTime", times.seconds(now))
    return status


def _verdicts(pod: NodePod, seen: Running | None, phase: Phase) -> list[_Verdict]:
    completed = phase is Phase.SUCCEEDED
    initialized = not pod.spec.init_containers or completed or (seen is not None and _initialized(seen.init))
    unready = [c.name for c in pod.spec.containers if not _container_ready(seen, c.name)]
    all_ready = not unready and phase is Phase.RUNNING
    why, what = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    if completed:
        why, what = "PodCompleted", ""
    incomplete = " ".join(c.name for c in pod.spec.init_containers)
    gates = [
        gate.condition_type for gate in pod.spec.readiness_gates if _truth(pod.status, gate.condition_type) != "True"
    ]
    gated = [f'corresponding condition of pod readiness gate "{gate}" is not "True".' for gate in gates]
    ready_why, ready_what = (why, what) if not all_ready else ("ReadinessGatesNotReady", " ".join(gated))
    return [
        (READY_TO_START, seen is not None and bool(seen.address) and phase in (Phase.PENDING, Phase.RUNNING), "", ""),
        (INITIALIZED, initialized, "ContainersNotInitialized", f"containers with incomplete status: [{incomplete}]"),
        (READY, all_ready and not gates, ready_why, ready_what),
        (CONTAINERS_READY, all_ready, why, what),
        (SCHEDULED, True, "", ""),
    ]


def _conditions(pod: NodePod, verdicts: Sequence[_Verdict], now: datetime) -> list[Json]:
    """Ours first, in the usual order; each keeps the time at which its status last changed."""
    known = {condition.get("type"): condition for condition in pod.status.get("conditions") or ()}
    made = []
    for type_, holds, reason, message in verdicts:
        truth = "True" if holds else "False"
        old = known.get(type_) or {}
        since = old.get("lastTransitionTime") if old.get("status") == truth else None
        condition: Json = {"type": type_, "status": truth, "lastTransitionTime": since or times.seconds(now)}
        if not holds:
            condition |= {name: text for name, text in (("reason", reason), ("message", message)) if text}
        made.append(condition if not _same(old, condition) else old)
    ours = {type_ for type_, *_ in verdicts}
    return made + [condition for type_, condition in known.items() if type_ not in ours]


def _same(old: Json, new: Json) -> bool:
    return all(
        (old.get(name) or "") == (new.get(name) or "") for name in ("type", "status", "reason", "message")
    ) and bool(old.get("lastTransitionTime"))


def _truth(status: Json, type_: str) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == type_:
            truth: str = condition.get("status", "")
            return truth
    return ""


def _initialized(init: Sequence[RunningContainer]) -> bool:
    return all(isinstance(c.state, Exit) and c.state.code == 0 for c in init)


def _container_ready(seen: Running | None, name: str) -> bool:
    for container in seen.containers if seen is not None else ():
        if container.name == name:
            return isinstance(container.state, Started) and container.state.ready
    return False


def _killed(container: RunningContainer, now: datetime) -> RunningContainer:
    started = container.state.at if isinstance(container.state, Started) else None
    return RunningContainer(container.name, Exit(137, now, started), container.id, container.restarts, container.last)


def _code(container: RunningContainer) -> int:
    return container.state.code if isinstance(container.state, Exit) else 0
