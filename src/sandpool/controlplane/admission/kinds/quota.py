"""Rules for ResourceQuotas: known resource names, whole numbers where objects are counted, and scopes that fit together."""

from __future__ import annotations

from typing import Any

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.causes import entry
from sandpool.controlplane.admission.kinds.rules import Body, KindRules
from sandpool.controlplane.admission.name_rules import label_key
from sandpool.kube.errors import Cause
from sandpool.model.quantities import parse

_COUNTED = frozenset(
    (
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    )
)
_COMPUTE = ("cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory")
_STANDARD = _COUNTED | {
    *_COMPUTE,
    *(f"{part}ephemeral-storage" for part in ("", "requests.", "limits.")),
    "requests.storage",
}
_HUGE = ("hugepages-", "requests.hugepages-")
_SCOPES = {
    "Terminating": ("pods", *_COMPUTE),
    "NotTerminating": ("pods", *_COMPUTE),
    "BestEffort": ("pods",),
    "NotBestEffort": ("pods", *_COMPUTE),
    "PriorityClass": ("pods", *_COMPUTE),
}
"""The resource names that each scope may be combined with. Kubernetes has two more scopes, for affinities and volume classes, which are not
supported here: a quota with one of them would limit nothing, so it is refused."""
_OPPOSITES = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_ONLY_EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def _prepare(body: Body, old: Body | None) -> Body:
    """Drops an empty `hard`, and clears the status of a new quota."""
    spec = body.get("spec")
    if type(spec) is dict and spec.get("hard") == {}:
        body = {**body, "spec": {name: value for name, value in spec.items() if name != "hard"}}
    return {**body, "status": {}} if old is None else body


def _check(body: Body, old: Body | None) -> list[Cause]:
    spec: dict[str, Any] = body.get("spec") or {}
    if old is not None and spec is old.get("spec"):
        return []
    hard = spec.get("hard") or {}
    found = [cause for name in sorted(hard) for cause in _check_amount(entry("spec.hard", name), name, hard[name])]
    scopes = spec.get("scopes") or []
    found += _check_scopes(scopes, hard)
    selector = spec.get("scopeSelector")
    if selector is not None:
        found += _check_selector(selector, scopes, hard)
    if old is not None and set(scopes) != set((old.get("spec") or {}).get("scopes") or []):
        found.append(causes.immutable("spec.scopes", scopes))
    return found


def _check_amount(field: str, name: str, amount: Any) -> list[Cause]:
    found = [causes.invalid(field, name, text) for text in label_key(name)]
    if "/" not in name and not (name in _STANDARD or name.startswith(_HUGE)):
        if not found and name != "storage":
            found.append(causes.invalid(field, name, "must be a standard resource type or fully qualified"))
        found.append(causes.invalid(field, name, "must be a standard resource for quota"))
    quantity = parse(amount)
    if quantity.nanos < 0:
        found.append(causes.invalid(field, amount, "must be greater than or equal to 0"))
    if name in _COUNTED and quantity.milli % 1000:
        found.append(causes.invalid(field, amount, "must be an integer"))
    return found


def _check_scopes(scopes: list[str], hard: dict[str, Any]) -> list[Cause]:
    found: list[Cause] = []
    for scope in scopes:
        if scope not in _SCOPES:
            found.append(causes.invalid("spec.scopes", scopes, "unsupported scope"))
        found += [
            causes.invalid("spec.scopes", scopes, "unsupported scope applied to resource")
            for _ in _outside(scope, hard)
        ]
    return found + _conflicts("spec.scopes", scopes, scopes)


def _check_selector(selector: dict[str, Any], scopes: list[str], hard: dict[str, Any]) -> list[Cause]:
    field = "spec.scopeSelector.matchExpressions"
    found: list[Cause] = []
    named: list[str] = []
    for rule in selector.get("matchExpressions") or []:
        scope, operator, values = rule.get("scopeName", ""), rule.get("operator", ""), rule.get("values") or []
        if scope not in _SCOPES:
            found.append(causes.invalid(f"{field}.scopeName", scope, "unsupported scope"))
        found += [
            causes.invalid(field, selector, "unsupported scope applied to resource") for _ in _outside(scope, hard)
        ]
        if scope in _SCOPES and scope != "PriorityClass" and operator != "Exists":
            found.append(causes.invalid(f"{field}.operator", operator, _ONLY_EXISTS))
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                found.append(causes.required(f"{field}.values", detail))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                found.append(causes.invalid(f"{field}.values", values, detail))
        else:
            found.append(causes.invalid(f"{field}.operator", operator, "not a valid selector operator"))
        named.append(scope)
    return found + _conflicts(field, named, scopes)


def _outside(scope: str, hard: dict[str, Any]) -> list[str]:
    """The resource names that cannot be combined with this scope. Names with a slash are not checked."""
    if scope not in _SCOPES:
        return []
    return sorted(name for name in hard if (name in _STANDARD or name.startswith(_HUGE)) and name not in _SCOPES[scope])


def _conflicts(field: str, named: list[str], shown: list[str]) -> list[Cause]:
    return [causes.invalid(field, shown, "conflicting scopes") for pair in _OPPOSITES if set(pair) <= set(named)]


RESOURCE_QUOTA = KindRules(known_finalizers=True, prepare=_prepare, check=_check)
