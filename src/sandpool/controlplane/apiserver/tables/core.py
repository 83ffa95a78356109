"""Table columns of Kubernetes' own kinds, as `kubectl get` shows them on any cluster."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sandpool.controlplane.apiserver.tables.column import AGE, NAME, Json, TableColumn, plain
from sandpool.model.times import since

NONE = "<none>"
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_ROLE = "node-role.kubernetes.io/"


def _statuses(pod: Json, kind: str = "containerStatuses") -> list[Json]:
    return (pod.get("status") or {}).get(kind) or []


def _sidecars(pod: Json) -> set[str]:
    """Init containers that run as long as the pod; they count like its other containers."""
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
    """The pod's status by its init containers: the first that has not succeeded decides."""
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


def _at(*path: str, default: Any = "") -> Callable[[Json], Any]:
    def cell(item: Json) -> Any:
        value: Any = item
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        return default if value is None else value

    return cell


def _labels(selector: Any) -> str:
    if not isinstance(selector, dict) or not selector:
        return NONE
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))


def _label_selector(selector: Any) -> str:
    if not isinstance(selector, dict):
        return NONE
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for rule in selector.get("matchExpressions") or ():
        key, values = rule.get("key", ""), ",".join(rule.get("values") or ())
        operator = rule.get("operator")
        words = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append(words.get(str(operator), f"{key} {operator}"))
    return ",".join(parts) or NONE


def _ports(service: Json) -> str:
    shown = []
    for port in (service.get("spec") or {}).get("ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or NONE


def _external_ip(service: Json) -> str:
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", NONE))
    balancer = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    found = [entry.get("ip") or entry.get("hostname") for entry in balancer] + list(spec.get("externalIPs") or ())
    pending = "<pending>" if spec.get("type") == "LoadBalancer" else NONE
    return ",".join(part for part in found if part) or pending


def _node_status(node: Json) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((c for c in conditions if c.get("type") == "Ready"), None)
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(node: Json) -> str:
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))) or NONE


def _address(kind: str) -> Callable[[Json], str]:
    def cell(node: Json) -> str:
        addresses = (node.get("status") or {}).get("addresses") or ()
        return next((a.get("address", NONE) for a in addresses if a.get("type") == kind), NONE)

    return cell


def _first_time(event: Json) -> Any:
    return event.get("firstTimestamp") or event.get("eventTime")


def _last_seen(event: Json, now: datetime) -> str:
    series = (event.get("series") or {}).get("lastObservedTime")
    return since(series or event.get("lastTimestamp") or _first_time(event), now)


def _involved(event: Json) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _source(event: Json) -> str:
    source = event.get("source") or {}
    parts = (
        source.get("component") or event.get("reportingComponent"),
        source.get("host") or event.get("reportingInstance"),
    )
    return ", ".join(part for part in parts if part)


def _count(event: Json) -> str:
    return str((event.get("series") or {}).get("count") or event.get("count") or 1)


def _message(event: Json) -> str:
    return str(event.get("message") or "").strip()


def _modes(claim: Json) -> str:
    modes = (claim.get("status") or {}).get("accessModes") or ()
    return ",".join(_MODES.get(mode, str(mode)) for mode in modes)


def _entries(*fields: str) -> Callable[[Json], int]:
    return lambda item: sum(len(item.get(field) or ()) for field in fields)


def _claim_status(claim: Json) -> str:
    if claim["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str(_at("status", "phase")(claim))


def _quota_cell(*, limits: bool) -> Callable[[Json], str]:
    """A cell with used/hard amounts of a quota: those of limits, or all others."""

    def cell(quota: Json) -> str:
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        names = (name for name in sorted(hard) if name.startswith("limits.") is limits)
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return cell


EVENTS = (
    TableColumn("Last Seen", _last_seen),
    plain("Type", _at("type")),
    plain("Reason", _at("reason")),
    plain("Object", _involved),
    plain("Subobject", _at("involvedObject", "fieldPath"), 1),
    plain("Source", _source, 1),
    plain("Message", _message),
    TableColumn("First Seen", lambda event, now: since(_first_time(event), now), 1),
    plain("Count", _count, 1),
    TableColumn("Name", NAME.cell, 1, format="name", description=NAME.description),
)
SERVICES = (
    NAME,
    plain("Type", _at("spec", "type")),
    plain("Cluster-IP", _at("spec", "clusterIP", default=NONE)),
    plain("External-IP", _external_ip),
    plain("Port(s)", _ports),
    AGE,
    plain("Selector", lambda item: _labels((item.get("spec") or {}).get("selector")), 1),
)
NODES = (
    NAME,
    plain("Status", _node_status),
    plain("Roles", _roles),
    AGE,
    plain("Version", _at("status", "nodeInfo", "kubeletVersion")),
    plain("Internal-IP", _address("InternalIP"), 1),
    plain("External-IP", _address("ExternalIP"), 1),
    plain("OS-Image", _at("status", "nodeInfo", "osImage", default="<unknown>"), 1),
    plain("Kernel-Version", _at("status", "nodeInfo", "kernelVersion", default="<unknown>"), 1),
    plain("Container-Runtime", _at("status", "nodeInfo", "containerRuntimeVersion", default="<unknown>"), 1),
)
CLAIMS = (
    NAME,
    plain("Status", _claim_status),
    plain("Volume", _at("spec", "volumeName")),
    plain("Capacity", _at("status", "capacity", "storage")),
    plain("Access Modes", _modes),
    plain("StorageClass", _at("spec", "storageClassName")),
    plain("VolumeAttributesClass", _at("spec", "volumeAttributesClassName", default="<unset>")),
    AGE,
    plain("VolumeMode", _at("spec", "volumeMode", default="<unset>"), 1),
)

BY_PLURAL: dict[tuple[str, str], tuple[TableColumn, ...]] = {
    ("", "pods"): PODS,
    ("", "services"): SERVICES,
    ("", "namespaces"): (NAME, plain("Status", _at("status", "phase")), AGE),
    ("", "nodes"): NODES,
    ("", "events"): EVENTS,
    ("", "persistentvolumeclaims"): CLAIMS,
    ("", "configmaps"): (NAME, plain("Data", _entries("data", "binaryData")), AGE),
    ("", "secrets"): (NAME, plain("Type", _at("type")), plain("Data", _entries("data")), AGE),
    ("", "serviceaccounts"): (NAME, AGE),
    ("", "resourcequotas"): (
        NAME,
        plain("Request", _quota_cell(limits=False)),
        plain("Limit", _quota_cell(limits=True)),
        AGE,
    ),
    ("coordination.k8s.io", "leases"): (NAME, plain("Holder", _at("spec", "holderIdentity")), AGE),
    ("networking.k8s.io", "networkpolicies"): (
        NAME,
        plain("Pod-Selector", lambda item: _label_selector((item.get("spec") or {}).get("podSelector"))),
        AGE,
    ),
    ("node.k8s.io", "runtimeclasses"): (NAME, plain("Handler", _at("handler")), AGE),
}
