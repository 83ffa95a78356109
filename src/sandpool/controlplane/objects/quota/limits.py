"""What one ResourceQuota allows: whom it is about, and what of a request it refuses, in the words of Kubernetes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sandpool.controlplane.objects.quota.usage import ZERO, Amounts, Usage, names_used_by
from sandpool.model.core import ResourceQuotaSpec, ScopeRequirement
from sandpool.model.quantities import Quantity, parse
from sandpool.model.resource import Resource


@dataclass(frozen=True, slots=True)
class Limits:
    """A ResourceQuota, ready to be asked."""

    name: str
    hard: Mapping[str, Quantity] = field(default_factory=dict)
    scopes: tuple[ScopeRequirement, ...] = ()

    def names_for(self, resource: Resource[Any]) -> tuple[str, ...]:
        """What of it objects of this kind use. One with scopes is about pods only."""
        if self.scopes and resource.plural != "pods":
            return ()
        return _names_for(tuple(self.hard), resource)

    def covers(self, usage: Usage) -> bool:
        return all(_in_scope(scope, usage) for scope in self.scopes)


def limits_of(name: str, spec: ResourceQuotaSpec) -> Limits:
    scopes = tuple(ScopeRequirement(scope, "Exists") for scope in spec.scopes)
    hard = {resource: parse(amount) for resource, amount in spec.hard.items()}
    return Limits(name, hard, (*scopes, *spec.scope_selector.match_expressions))


def excess(limits: Limits, used: Mapping[str, Quantity], asked: Mapping[str, Quantity]) -> str:
    """Why so much more cannot be had; empty: it can. What asks for nothing more is never refused."""
    more = {name: asked[name] for name in limits.hard if name in asked and asked[name].nanos > 0}
    over = sorted(name for name, amount in more.items() if used.get(name, ZERO) + amount > limits.hard[name])
    if not over:
        return ""
    told = (
        f"{label}: {','.join(f'{name}={amounts.get(name, ZERO)}' for name in over)}"
        for label, amounts in (("requested", more), ("used", used), ("limited", limits.hard))
    )
    return f"exceeded quota: {limits.name}, {', '.join(told)}"


def beyond(usage: Usage, before: Usage | None) -> Amounts:
    """What an object uses more than before."""
    if before is None:
        return dict(usage.amounts)
    return {
        name: amount - before.amounts.get(name, ZERO)
        for name, amount in usage.amounts.items()
        if amount > before.amounts.get(name, ZERO)
    }


@lru_cache(maxsize=4096)
def _names_for(names: tuple[str, ...], resource: Resource[Any]) -> tuple[str, ...]:
    return names_used_by(resource, names)


def _in_scope(scope: ScopeRequirement, usage: Usage) -> bool:
    match scope.scope_name:
        case "Terminating":
            return usage.pod and usage.terminating
        case "NotTerminating":
            return usage.pod and not usage.terminating
        case "BestEffort":
            return usage.pod and usage.best_effort
        case "NotBestEffort":
            return usage.pod and not usage.best_effort
        case "PriorityClass":
            return usage.pod and _class_selected(scope, usage.priority)
        case _:
            return False  # refused where quotas are admitted


def _class_selected(scope: ScopeRequirement, name: str) -> bool:
    match scope.operator:
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
        case "In":
            return name in scope.values
        case _:  # NotIn
            return name not in scope.values
