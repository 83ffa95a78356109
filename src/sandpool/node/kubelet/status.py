"""A pod's status: what it should say, given what the backend says. Pure.

Fields and conditions of others stay as they are. A pod that has succeeded or failed never leaves that phase.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sandpool.model import times
from sandpool.model.pod import Phase
from sandpool.node.backend import Exit, Running, RunningContainer, Started
from sandpool.node.kubelet import containers, restarts
from sandpool.node.kubelet.containers import Trouble
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.pods import Json, NodePod, NodePodSpec
from sandpool.node.kubelet.probe_state import Health

READY_TO_START = "PodReadyToStartContainers"
INITIALIZED = "Initialized"
READY = "Ready"
CONTAINERS_READY = "ContainersReady"
SCHEDULED = "PodScheduled"
EVICTED = "Evicted"
NOTED = "sandpool.dev/Noted"
"""There while the user should know something: ports that are mapped to others, sizes that nobody enforces."""
OURS = (READY_TO_START, INITIALIZED, READY, CONTAINERS_READY, SCHEDULED)
OVER = (Phase.SUCCEEDED, Phase.FAILED)
NO_PROBES: Mapping[str, Health] = {}

_Verdict = tuple[str, bool, str, str]  # type, whether it holds, reason, message


def accepted(pod: NodePod, host: str, trouble: Trouble | None, now: datetime) -> Json:
    """The status of a pod that this node has taken and that does not run yet."""
    phase = Phase.RUNNING if pod.phase == Phase.RUNNING else Phase.PENDING  # a pod that ran is not pending again
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
    pod: NodePod, seen: Running, host: str, pace: Pace, now: datetime, health: Mapping[str, Health] = NO_PROBES
) -> Json:
    """The status of a pod that the backend has."""
    seen = containers.judged(seen, health)
    starting = {name for name, known in health.items() if not known.started} if health else set()
    phase = phase_of(seen, pod.spec)
    if phase is Phase.PENDING and pod.phase == Phase.RUNNING:
        phase = Phase.RUNNING
    over = phase in OVER
    initializing = not _initialized(seen, pod.spec, starting)
    showing = containers.Showing(pod, pace, now, starting, initializing, final=over)
    fields: Json = {
        "phase": phase.value,
        "initContainerStatuses": containers.init_statuses(showing, pod.spec.init_containers, seen.init),
        "containerStatuses": containers.statuses(showing, pod.spec.containers, seen.containers),
    }
    if seen.address:
        fields |= {"podIP": seen.address, "podIPs": [{"ip": seen.address}]}
    return _complete(pod, fields, _verdicts(pod, seen, phase, starting), host, now)


def ended(pod: NodePod, host: str, now: datetime) -> Json:
    """The status of a leaving pod of which nothing is left but the object, because finalizers hold it."""
    return _over(pod, Exit(137, now), host, now)


def lost(pod: NodePod, host: str, now: datetime) -> Json:
    """The status of a pod that must not be restarted, and whose processes ended with an earlier sandpool."""
    status = _over(pod, restarts.lost(None, now), host, now)
    words = (
        "sandpool was restarted, and the processes of this pod ended with it; restartPolicy Never keeps it from starting "
        "again. Delete the pod; a Sandbox gets a new one then"
    )
    return {**status, "reason": restarts.SANDPOOL_RESTARTED, "message": words}


def completed(pod: NodePod, host: str, now: datetime) -> Json | None:
    """The final status of a pod whose processes ended with an earlier sandpool, if nothing but its sidecars ran any more; else None."""
    was = containers.read_back(pod)
    if was is None or aim_of(was, pod.spec) not in OVER:
        return None
    return running(pod, restarts.all_lost(was, now), host, Pace(), now)


def evicted(pod: NodePod, host: str, why: str, now: datetime) -> Json:
    """The status of a pod that this node has ended because it used too much of the disk."""
    status = _over(pod, Exit(137, now, reason=EVICTED, message=why.strip()), host, now)
    return {**status, "phase": Phase.FAILED.value, "reason": EVICTED, "message": why}


def _over(pod: NodePod, end: Exit, host: str, now: datetime) -> Json:
    """The status of a pod of which nothing runs any more: what had not ended before ended like this."""
    known = containers.read_back(pod)
    parts = known.containers if known is not None else ()
    final = tuple(c if isinstance(c.state, Exit) else _ended(c, end) for c in parts)
    names = {container.name for container in final}
    final += tuple(RunningContainer(c.name, end) for c in pod.spec.containers if c.name not in names)
    showing = containers.Showing(pod, Pace(), now, final=True)
    fields: Json = {
        "phase": Phase.FAILED.value if any(_code(c) for c in final) else Phase.SUCCEEDED.value,
        "containerStatuses": containers.statuses(showing, pod.spec.containers, final),
    }
    seen = Running(pod.metadata.uid, pod.metadata.key, init=known.init if known else (), containers=final)
    return _complete(pod, fields, _verdicts(pod, seen, Phase(fields["phase"])), host, now)


def phase_of(seen: Running, spec: NodePodSpec) -> Phase:
    """A pod is over when its sidecars have ended, too."""
    phase = aim_of(seen, spec)
    if phase in OVER and running_sidecars(seen, spec):
        return Phase.RUNNING
    return phase


def aim_of(seen: Running, spec: NodePodSpec) -> Phase:
    """The phase as far as the containers that count are concerned."""
    if not _initialized(seen, spec):
        ends = [(c.name, c.state) for c in seen.init if isinstance(c.state, Exit)]
        failed = any(end.code and not restarts.restarts(restarts.policy_of(spec, name), end) for name, end in ends)
        return Phase.FAILED if failed else Phase.PENDING
    ended: list[Exit] = []
    for container in seen.containers:
        if isinstance(container.state, Exit):
            ended.append(container.state)
        elif not isinstance(container.state, Started):
            return Phase.PENDING
    if len(ended) < len(seen.containers) or any(restarts.restarts(spec.restart_policy, end) for end in ended):
        return Phase.RUNNING
    return Phase.FAILED if any(end.code for end in ended) else Phase.SUCCEEDED


def running_sidecars(seen: Running, spec: NodePodSpec) -> list[str]:
    if not spec.init_containers:
        return []
    sidecars = {init.name for init in spec.init_containers if init.sidecar}
    return [init.name for init in seen.init if init.name in sidecars and isinstance(init.state, Started)]


def unschedulable(pod: NodePod, reason: str, message: str, now: datetime) -> Json:
    """The status of a pod that has no node, and why."""
    return {**pod.status, "conditions": _conditions(pod, [(SCHEDULED, False, reason, message)], now)}


def difference(pod: NodePod, status: Json) -> Json:
    """The fields that a write has to carry; empty: nothing to say."""
    return {name: value for name, value in status.items() if pod.status.get(name) != value}


def ready_differs(pod: NodePod, status: Json) -> bool:
    """A pod that never said whether it is ready is not."""
    return (_truth(pod.status, READY) == "True") != (_truth(status, READY) == "True")


def scheduled(pod: NodePod) -> bool:
    return _truth(pod.status, SCHEDULED) == "True"


def foreign(pod: NodePod) -> list[Json]:
    """Conditions that somebody else keeps on the pod."""
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


def _verdicts(pod: NodePod, seen: Running | None, phase: Phase, starting: Container[str] = ()) -> list[_Verdict]:
    completed = phase is Phase.SUCCEEDED
    incomplete = [] if completed else _incomplete(seen, pod.spec, starting)
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
    missing = f"containers with incomplete status: [{' '.join(incomplete)}]"
    found = [
        (READY_TO_START, seen is not None and bool(seen.address) and phase in (Phase.PENDING, Phase.RUNNING), "", ""),
        (INITIALIZED, not incomplete, "ContainersNotInitialized", missing),
        (READY, all_ready and not gates, ready_why, ready_what),
        (CONTAINERS_READY, all_ready, why, what),
        (SCHEDULED, True, "", ""),
    ]
    if seen is not None and seen.notes:
        found.append((NOTED, True, "Limitations", "; ".join(seen.notes)))
    return found


def _open_gates(pod: NodePod) -> list[str]:
    """Conditions that others have to set before the pod is ready."""
    types = [gate.condition_type for gate in pod.spec.readiness_gates]
    return [type_ for type_ in types if _truth(pod.status, type_) != "True"]


def _conditions(pod: NodePod, verdicts: Sequence[_Verdict], now: datetime) -> list[Json]:
    """Ours first, in the usual order; each keeps the time at which its status last changed."""
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


def _initialized(seen: Running, spec: NodePodSpec, starting: Container[str] = ()) -> bool:
    return not _incomplete(seen, spec, starting)


def _incomplete(seen: Running | None, spec: NodePodSpec, starting: Container[str] = ()) -> list[str]:
    """The init containers that have not succeeded, and the sidecars that have never started."""
    if not spec.init_containers:
        return []
    begun = seen is not None and any(isinstance(c.state, Started | Exit) for c in seen.containers)
    states = {c.name: c.state for c in seen.init} if seen is not None else {}
    found = []
    for init in spec.init_containers:
        state = states.get(init.name)
        if init.sidecar:
            done = begun or (isinstance(state, Started) and init.name not in starting)
        else:
            done = isinstance(state, Exit) and state.code == 0
        if not done:
            found.append(init.name)
    return found


def _container_ready(seen: Running | None, name: str) -> bool:
    if seen is not None:
        for container in (*seen.containers, *seen.init) if seen.init else seen.containers:
            if container.name == name:
                return isinstance(container.state, Started) and container.state.ready
    return False


def _ended(container: RunningContainer, end: Exit) -> RunningContainer:
    started = container.state.at if isinstance(container.state, Started) else None
    return replace(container, state=replace(end, started_at=started))


def _code(container: RunningContainer) -> int:
    return container.state.code if isinstance(container.state, Exit) else 0
