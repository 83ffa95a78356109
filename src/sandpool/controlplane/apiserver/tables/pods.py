"""The columns of pods: readiness, the one word that says what is going on, restarts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sandpool.controlplane.apiserver.tables.age import since
from sandpool.controlplane.apiserver.tables.column import AGE, NAME, Json, TableColumn, plain

NONE = "<none>"


def _statuses(pod: Json, kind: str = "containerStatuses") -> list[Json]:
    return (pod.get("status") or {}).get(kind) or []


def _sidecars(pod: Json) -> set[str]:
    """Init containers that run as long as the pod: they count like its other containers."""
    init = (pod.get("spec") or {}).get("initContainers") or ()
    return {one.get("name", "") for one in init if one.get("restartPolicy") == "Always"}


def _lasting(pod: Json) -> list[Json]:
    sidecars = _sidecars(pod)
    init = [status for status in _statuses(pod, "initContainerStatuses") if status.get("name") in sidecars]
    return init + _statuses(pod)


def _ready(pod: Json) -> str:
    ready = sum(1 for status in _lasting(pod) if status.get("ready") and "running" in (status.get("state") or {}))
    return f"{ready}/{len((pod.get('spec') or {}).get('containers') or ()) + len(_sidecars(pod))}"


def _status(pod: Json) -> str:
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase") or "Unknown"
    init = _of_init(pod)
    initialising = bool(init) and not _condition(pod, "Initialized")
    reason = ("" if initialising else _of_containers(pod)) or init or reason
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(reason)


def _of_init(pod: Json) -> str:
    """The first init container that has not succeeded decides."""
    total = len((pod.get("spec") or {}).get("initContainers") or ())
    for index, status in enumerate(_statuses(pod, "initContainerStatuses")):
        state = status.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended is not None:
            if ended.get("exitCode", 0) == 0:
                continue
            return "Init:" + _ending(ended)
        if status.get("started") and "running" in state:
            continue
        if waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{total}"
    return ""


def _of_containers(pod: Json) -> str:
    reason, running = "", False
    for status in reversed(_statuses(pod)):
        state = status.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif state.get("terminated") is not None:
            reason = _ending(state["terminated"])
        elif status.get("ready") and "running" in state:
            running = True
    if reason == "Completed" and running:
        return "Running" if _condition(pod, "Ready") else "NotReady"
    return reason


def _condition(pod: Json, type_: str) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == type_ and c.get("status") == "True" for c in conditions)


def _ending(ended: Json) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _restarts(pod: Json, now: datetime) -> str:
    initialising = bool(_of_init(pod)) and not _condition(pod, "Initialized")
    statuses = _statuses(pod, "initContainerStatuses") if initialising else _lasting(pod)
    count = sum(status.get("restartCount") or 0 for status in statuses)
    ends = [((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for status in statuses]
    last = max((end for end in ends if end), default=None)
    return f"{count} ({since(last, now)} ago)" if count and last else str(count)


def _ip(pod: Json) -> str:
    status = pod.get("status") or {}
    addresses = status.get("podIPs") or ()
    return (addresses[0].get("ip") if addresses else status.get("podIP")) or NONE


def _gates(pod: Json) -> str:
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    if not gates:
        return NONE
    true = {c.get("type") for c in (pod.get("status") or {}).get("conditions") or () if c.get("status") == "True"}
    return f"{sum(1 for gate in gates if gate.get('conditionType') in true)}/{len(gates)}"


def _of(section: str, field: str) -> Any:
    return lambda pod: (pod.get(section) or {}).get(field) or NONE


PODS = (
    NAME,
    plain("Ready", _ready),
    plain("Status", _status),
    TableColumn("Restarts", _restarts),
    AGE,
    plain("IP", _ip, 1),
    plain("Node", _of("spec", "nodeName"), 1),
    plain("Nominated Node", _of("status", "nominatedNodeName"), 1),
    plain("Readiness Gates", _gates, 1),
)
