"""Computes what one object uses of a ResourceQuota, as Kubernetes counts it. Pure.

Every object counts as one of its kind (`count/…`). Pods also use the requests and limits of their containers until they have ended;
volume claims use storage; Services use ports. A pod that is being deleted counts until it is gone: here a kubelet always finishes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandpool.controlplane.admission.kinds.pod import quality
from sandpool.model import kinds
from sandpool.model.quantities import Quantity, QuantityError, parse
from sandpool.model.resource import Resource

Amounts = dict[str, Quantity]

ONE = parse(1)
ZERO = Quantity(0)
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_HUGE = "hugepages-"
_BY_CLASS = ".storageclass.storage.k8s.io/"
_ALIASES = {"configmaps": "configmaps", "secrets": "secrets", "resourcequotas": "resourcequotas"}
_POD = frozenset(
    ("pods", "count/pods", *_COMPUTE, *(f"{part}.{name}" for part in ("requests", "limits") for name in _COMPUTE))
)
_SERVICE = frozenset(("services", "count/services", "services.nodeports", "services.loadbalancers"))
_CLAIM = ("persistentvolumeclaims", "requests.storage")
_IGNORED = frozenset(("events",))  # Kubernetes has never counted them
_PODS = kinds.PODS.plural
_SERVICES = kinds.SERVICES.plural
_CLAIMS = kinds.PERSISTENT_VOLUME_CLAIMS.plural


@dataclass(frozen=True, slots=True)
class Usage:
    """What an object uses, and the properties that quota scopes select by."""

    amounts: Mapping[str, Quantity] = field(default_factory=dict)
    pod: bool = False
    terminating: bool = False  # it has activeDeadlineSeconds
    best_effort: bool = False
    priority: str = ""


def names_used_by(resource: Resource[Any], names: Iterable[str]) -> tuple[str, ...]:
    """The resource names in a quota that objects of this kind use, sorted."""
    if resource.group or not resource.namespaced:
        own = f"count/{resource.group_resource}" if resource.namespaced else ""
        return tuple(sorted(name for name in names if name == own))
    plural = resource.plural
    if plural in _IGNORED:
        return ()
    if plural == _PODS:
        found = (
            name for name in names if name in _POD or name.startswith((_HUGE, f"requests.{_HUGE}")) or _extended(name)
        )
    elif plural == _SERVICES:
        found = (name for name in names if name in _SERVICE)
    elif plural == _CLAIMS:
        found = (
            name
            for name in names
            if name == f"count/{plural}" or name in _CLAIM or any(name.endswith(_BY_CLASS + each) for each in _CLAIM)
        )
    else:
        found = (name for name in names if name in (f"count/{plural}", _ALIASES.get(plural)))
    return tuple(sorted(found))


def usage_of(resource: Resource[Any], document: Mapping[str, Any]) -> Usage:
    count = {f"count/{resource.group_resource}": ONE}
    if resource.group:
        return Usage(count)
    if resource.plural == _PODS:
        return _of_pod(document, count)
    if resource.plural == _SERVICES:
        return Usage({**count, **_of_service(document)})
    if resource.plural == _CLAIMS:
        return Usage({**count, **_of_claim(document)})
    alias = _ALIASES.get(resource.plural)
    return Usage({**count, alias: ONE} if alias else count)


def unspecified(names: Iterable[str], pod: Mapping[str, Any]) -> str:
    """The message for containers that lack a request or limit which a quota on cpu or memory requires; empty if none does."""
    spec = pod.get("spec") or {}
    demanded = sorted(name for name in names if name in _POD and name.endswith(("cpu", "memory")))
    missing: dict[str, list[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        said = _compute(*_said(container))
        for name in demanded:
            if name not in said:
                missing.setdefault(name, []).append(container.get("name", ""))
    parts = (f"{name} for: {','.join(sorted(set(missing[name])))}" for name in sorted(missing))
    return f"must specify {'; '.join(parts)}" if missing else ""


def added(one: Mapping[str, Quantity], other: Mapping[str, Quantity]) -> Amounts:
    return {**one, **{name: one.get(name, ZERO) + amount for name, amount in other.items()}}


def _of_pod(pod: Mapping[str, Any], count: Amounts) -> Usage:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    amounts = count
    if status.get("phase") not in ("Succeeded", "Failed"):
        amounts = {**count, "pods": ONE, **_compute(*_of_all_containers(spec))}
    deadline = spec.get("activeDeadlineSeconds")
    return Usage(
        amounts,
        pod=True,
        terminating=deadline is not None and deadline >= 0,
        best_effort=quality(spec) == "BestEffort",
        priority=spec.get("priorityClassName") or "",
    )


def _compute(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> Amounts:
    found: Amounts = {}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith(_HUGE):
            found[name] = found[f"requests.{name}"] = amount
        elif "/" in name:
            found[f"requests.{name}"] = amount
    found |= {f"limits.{name}": amount for name, amount in limits.items() if name in _COMPUTE}
    return found


def _of_all_containers(spec: Mapping[str, Any]) -> tuple[Amounts, Amounts]:
    """Requests and limits of a whole pod: the largest of the sum of its containers, each init container plus the sidecars before it, and
    pod-level resources; plus the pod's overhead. (In Kubernetes pod-level resources replace the sum. Here nothing enforces them, so they
    cannot lower it.)"""
    own = _amounts(spec.get("resources"))
    overhead = _quantities(spec.get("overhead"))
    parts: list[Amounts] = []
    for index in range(2):
        total: Amounts = {}
        for container in spec.get("containers") or ():
            total = added(total, _said(container)[index])
        beside: Amounts = {}
        most: Amounts = {}
        for container in spec.get("initContainers") or ():
            asked = _said(container)[index]
            if container.get("restartPolicy") == "Always":
                total, beside = added(total, asked), added(beside, asked)
                most = _larger(most, beside)
            else:
                most = _larger(most, added(beside, asked))
        total = _larger(_larger(total, most), own[index])
        extra = (
            overhead
            if index == 0
            else {name: amount for name, amount in overhead.items() if total.get(name, ZERO).nanos}
        )
        parts.append(added(total, extra))
    return parts[0], parts[1]


def _said(container: Mapping[str, Any]) -> tuple[Amounts, Amounts]:
    return _amounts(container.get("resources"))


def _amounts(resources: Any) -> tuple[Amounts, Amounts]:
    resources = resources or {}
    return _quantities(resources.get("requests")), _quantities(resources.get("limits"))


def _quantities(amounts: Any) -> Amounts:
    return {name: _quantity(amount) for name, amount in (amounts or {}).items()}


def _quantity(amount: Any) -> Quantity:
    try:
        return parse(amount)
    except QuantityError:
        return ZERO  # admission refuses it


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return {**one, **{name: amount for name, amount in other.items() if name not in one or amount > one[name]}}


def _of_service(service: Mapping[str, Any]) -> Amounts:
    spec = service.get("spec") or {}
    ports = spec.get("ports") or ()
    balanced = spec.get("type") == "LoadBalancer"
    count = len(ports) if spec.get("type") == "NodePort" else 0
    if balanced:
        allocated = spec.get("allocateLoadBalancerNodePorts") is not False
        count = len(ports) if allocated else sum(1 for port in ports if port.get("nodePort"))
    return {"services": ONE, "services.nodeports": parse(count), "services.loadbalancers": parse(int(balanced))}


def _of_claim(claim: Mapping[str, Any]) -> Amounts:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    found: Amounts = {"persistentvolumeclaims": ONE}
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if asked is not None:
        amount = _quantity(asked)
        allocated = _quantity((status.get("allocatedResources") or {}).get("storage", 0))
        amount = max(amount, allocated)
        found["requests.storage"] = Quantity(amount.value * 10**9, amount.family)
    storage_class = spec.get("storageClassName")
    if storage_class:
        found |= {f"{storage_class}{_BY_CLASS}{name}": amount for name, amount in tuple(found.items())}
    return found


def _extended(name: str) -> bool:
    return name.startswith("requests.") and "/" in name and _BY_CLASS not in name
