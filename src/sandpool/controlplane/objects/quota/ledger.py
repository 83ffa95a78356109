"""Enforces ResourceQuotas: counts the usage of each namespace that has one, from the newest state, when each write is decided.

No other write is decided between the check of an object and the write that creates it, so two creates never both take the last
unit. A namespace without a quota has no ledger and costs nothing; without any quota the store calls no observer. Errors use Kubernetes' messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.change import Change
from sandpool.controlplane.objects.document import Document, decode
from sandpool.controlplane.objects.keys import parse_key, prefix_of
from sandpool.controlplane.objects.quota.usage import ZERO, Amounts, Usage, added, names_used_by, unspecified, usage_of
from sandpool.controlplane.store.log import Unit
from sandpool.controlplane.store.port import Store
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import Forbidden
from sandpool.model import codec, kinds
from sandpool.model.core import ResourceQuotaSpec, ScopeRequirement
from sandpool.model.metadata import NO_REVISION, Revision
from sandpool.model.quantities import Quantity, parse
from sandpool.model.resource import Resource


@dataclass(frozen=True, slots=True)
class Limits:
    """A ResourceQuota with parsed quantities and scopes."""

    name: str
    hard: Mapping[str, Quantity] = field(default_factory=dict)
    scopes: tuple[ScopeRequirement, ...] = ()

    def names_for(self, resource: Resource[Any]) -> tuple[str, ...]:
        """The resource names that objects of this kind use. A quota with scopes applies to pods only."""
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
    """Why this increase exceeds the quota; empty if it does not. A change without an increase is never refused."""
    more = {name: asked[name] for name in limits.hard if name in asked and asked[name].nanos > 0}
    over = sorted(name for name, amount in more.items() if used.get(name, ZERO) + amount > limits.hard[name])
    if not over:
        return ""
    parts = (
        f"{label}: {','.join(f'{name}={amounts.get(name, ZERO)}' for name in over)}"
        for label, amounts in (("requested", more), ("used", used), ("limited", limits.hard))
    )
    return f"exceeded quota: {limits.name}, {', '.join(parts)}"


def beyond(usage: Usage, before: Usage | None) -> Amounts:
    """By how much the object's usage increases."""
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
            return False  # admission refuses such a quota


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


_QUOTAS = prefix_of(kinds.RESOURCE_QUOTAS)
_MEASURED = (kinds.PODS, kinds.SERVICES, kinds.PERSISTENT_VOLUME_CLAIMS)
"""Kinds whose usage depends on the object's content. All others are only counted."""


class Ledger:
    """The quotas of one namespace, and the usage of each."""

    def __init__(self, namespace: str, store: Store) -> None:
        self.namespace = namespace
        self.specs: dict[str, ResourceQuotaSpec] = {}
        self.revision: Revision = NO_REVISION  # of the newest write that was counted
        self._store = store
        self._limits: dict[str, Limits] = {}  # by name, in order
        self._counted: dict[str, tuple[Resource[Any], Usage]] = {}
        self._used: dict[str, Amounts] = {}
        self._stale = True

    def refusal(
        self, resource: Resource[Any], name: str, document: Document, before: Document | None = None
    ) -> Forbidden | None:
        """Why this object may not be created, or not be changed like that; None if it may."""
        concerned = [limits for limits in self._limits.values() if limits.names_for(resource)]
        if not concerned:
            return None
        self._settle()
        usage = usage_of(resource, document)
        earlier = None if before is None else usage_of(resource, before)
        concerned = [limits for limits in concerned if limits.covers(usage)]
        for limits in concerned:
            wrong = unspecified(limits.names_for(resource), document) if usage.pod else ""
            if wrong:
                return refusals.over_quota(resource, name, f"failed quota: {limits.name}: {wrong}")
        for limits in concerned:
            counted = earlier if earlier is not None and limits.covers(earlier) else None
            wrong = excess(limits, self._used[limits.name], beyond(usage, counted))
            if wrong:
                return refusals.over_quota(resource, name, wrong)
        return None

    def change_refusal(self, resource: Resource[Any], change: Change, document: Document) -> Forbidden | None:
        """Why this change exceeds a quota; None if it does not. Only changes that can increase usage are checked: a change of the
        status, or of a kind that is only counted, cannot."""
        old = change.old.get("spec") or {}
        new = document.get("spec") or {}
        if change.subresource or resource not in _MEASURED or new is old:
            return None
        if resource == kinds.PODS and ("activeDeadlineSeconds" in new) == ("activeDeadlineSeconds" in old):
            return None  # a pod's usage can only increase in another scope
        return self.refusal(resource, change.name, document, change.old)

    def statuses(self) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
        """The current status of each quota, by name."""
        self._settle()
        for name, limits in self._limits.items():
            used = self._used[name]
            yield (
                name,
                {
                    "hard": {key: str(amount) for key, amount in sorted(limits.hard.items())},
                    "used": {key: str(used[key]) for key in sorted(used)},
                },
            )

    def put(self, name: str, spec: ResourceQuotaSpec) -> bool:
        """Adds or replaces a quota. Returns whether its status has to change."""
        if self.specs.get(name) == spec:
            return False
        self.specs[name] = spec
        self._limits = {each: limits_of(each, self.specs[each]) for each in sorted(self.specs)}
        self._stale = True
        return True

    def drop(self, name: str) -> None:
        if self.specs.pop(name, None) is not None:
            self._limits.pop(name, None)
            self._used.pop(name, None)

    def observe(self, resource: Resource[Any], record: Record, *, deleted: bool) -> bool:
        """Counts a write that was decided. Returns whether the usage changed."""
        self.revision = max(self.revision, record.revision)
        if self._stale or not any(limits.names_for(resource) for limits in self._limits.values()):
            return False
        known = self._counted.get(record.key)
        if known is not None and not deleted and resource not in _MEASURED:
            return False
        usage = None if deleted else _usage_of_record(resource, record)
        if (known[1] if known is not None else None) == usage:
            return False
        if known is not None:
            self._count(*known, sign=-1)
            del self._counted[record.key]
        if usage is not None:
            self._counted[record.key] = (resource, usage)
            self._count(resource, usage, sign=1)
        return True

    def _settle(self) -> None:
        if not self._stale:
            return
        self._stale = False
        self._counted.clear()
        self._used = {name: _nothing_used(limits) for name, limits in self._limits.items()}
        for resource in kinds.ALL:
            if any(limits.names_for(resource) for limits in self._limits.values()):
                for record in self._store.newest_under(prefix_of(resource, self.namespace)):
                    self.observe(resource, record, deleted=False)

    def _count(self, resource: Resource[Any], usage: Usage, *, sign: int) -> None:
        for name, limits in self._limits.items():
            names = limits.names_for(resource)
            if names and limits.covers(usage):
                own = {each: _signed(usage.amounts[each], sign) for each in names if each in usage.amounts}
                self._used[name] = added(self._used[name], own)


class Quotas:
    """The ledgers of all namespaces that have a quota, updated when writes are decided."""

    def __init__(self, store: Store) -> None:
        self.ledgers: dict[str, Ledger] = {}
        self.changed = asyncio.Event()  # the usage of some namespace may differ from its quota status
        self._dirty: dict[str, None] = {}
        self._store = store
        store.upset = self._begin_anew
        self._begin_anew()

    def expect(self) -> None:
        """Call this before a quota is created: writes are observed from now on."""
        self._store.decided = self._decided

    def outdated(self) -> tuple[Ledger, ...]:
        """The ledgers whose quota status is outdated; each is returned once."""
        names, self._dirty = tuple(self._dirty), {}
        self.changed.clear()
        return tuple(ledger for name in names if (ledger := self.ledgers.get(name)) is not None)

    def outdate(self, namespace: str) -> None:
        self._dirty[namespace] = None
        self.changed.set()

    def _begin_anew(self) -> None:
        """Reads all quotas again: at the start, and when decided writes failed or everything was replaced."""
        self.ledgers.clear()
        for record in self._store.newest_under(_QUOTAS):
            self._learn(record, deleted=False)
        self._store.decided = self._decided if self.ledgers else None

    def _decided(self, unit: Unit) -> None:
        for entry in unit:
            record, deleted = entry.change.record, entry.change.deleted
            if record.key.startswith(_QUOTAS):
                self._learn(record, deleted=deleted)
            parsed = parse_key(record.key)
            ledger = None if parsed is None else self.ledgers.get(parsed[1])
            if parsed is not None and ledger is not None and ledger.observe(parsed[0], record, deleted=deleted):
                self.outdate(ledger.namespace)
        if not self.ledgers:
            self._store.decided = None

    def _learn(self, record: Record, *, deleted: bool) -> None:
        namespace, _, name = record.key.removeprefix(_QUOTAS).rpartition("/")
        ledger = self.ledgers.get(namespace)
        if deleted:
            if ledger is not None:
                ledger.drop(name)
                if not ledger.specs:
                    del self.ledgers[namespace]
            return
        if ledger is None:
            ledger = self.ledgers[namespace] = Ledger(namespace, self._store)
        spec = codec.decode(kinds.RESOURCE_QUOTAS, record.value).spec
        if ledger.put(name, spec):
            ledger.revision = max(ledger.revision, record.revision)
            self.outdate(namespace)


def _usage_of_record(resource: Resource[Any], record: Record) -> Usage:
    return usage_of(resource, decode(record) if resource in _MEASURED else {})


def _nothing_used(limits: Limits) -> Amounts:
    """Zero for every resource name that a served kind uses. Other names do not appear in the status."""
    return {name: ZERO for resource in kinds.ALL for name in limits.names_for(resource)}


def _signed(amount: Quantity, sign: int) -> Quantity:
    return amount if sign > 0 else Quantity(-amount.nanos, amount.family)
