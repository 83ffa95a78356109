"""What namespaces with a ResourceQuota use now: counted from the newest state, at the moment in which each write is decided.

Between the question whether an object fits and the write that creates it nobody else is decided, so two creates never both take
the last place. A namespace without a quota has no ledger and costs nothing; without any quota the store calls nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.change import Change
from sandpool.controlplane.objects.document import Document, decode
from sandpool.controlplane.objects.keys import parse_key, prefix_of
from sandpool.controlplane.objects.quota.limits import Limits, beyond, excess, limits_of
from sandpool.controlplane.objects.quota.usage import ZERO, Amounts, Usage, added, unspecified, usage_of
from sandpool.controlplane.store.log import Unit
from sandpool.controlplane.store.port import Store
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import Forbidden
from sandpool.model import codec, kinds
from sandpool.model.core import ResourceQuotaSpec
from sandpool.model.metadata import NO_REVISION, Revision
from sandpool.model.quantities import Quantity
from sandpool.model.resource import Resource

_QUOTAS = prefix_of(kinds.RESOURCE_QUOTAS)
_MEASURED = (kinds.PODS, kinds.SERVICES, kinds.PERSISTENT_VOLUME_CLAIMS)
"""Kinds of which an object's content says what it uses; of all others there is just one more or one less."""


class Ledger:
    """The quotas of one namespace and what is used of each."""

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
        """Why this object may not be created, or not be changed so."""
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
        """Only what may use more than before is looked at: an object's status, or the rest of a kind that is just counted, may not."""
        old = change.old.get("spec") or {}
        new = document.get("spec") or {}
        if change.subresource or resource not in _MEASURED or new is old:
            return None
        if resource == kinds.PODS and ("activeDeadlineSeconds" in new) == ("activeDeadlineSeconds" in old):
            return None  # only another scope can make it use more
        return self.refusal(resource, change.name, document, change.old)

    def statuses(self) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
        """What the status of each quota should say."""
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
        """Whether that is something new."""
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
        """Counts a write that was decided. Whether anything is used differently now."""
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
    """The ledgers of all namespaces that have a quota, kept as writes are decided."""

    def __init__(self, store: Store) -> None:
        self.ledgers: dict[str, Ledger] = {}
        self.changed = asyncio.Event()  # some namespace uses something else than its quotas may say
        self._dirty: dict[str, None] = {}
        self._store = store
        store.upset = self._begin_anew
        self._begin_anew()

    def expect(self) -> None:
        """There is about to be a quota."""
        self._store.decided = self._decided

    def outdated(self) -> tuple[Ledger, ...]:
        """The ledgers whose quotas do not say yet what is used; asked once."""
        names, self._dirty = tuple(self._dirty), {}
        self.changed.clear()
        return tuple(ledger for name in names if (ledger := self.ledgers.get(name)) is not None)

    def outdate(self, namespace: str) -> None:
        self._dirty[namespace] = None
        self.changed.set()

    def _begin_anew(self) -> None:
        """Reads all quotas again: at the start, and when what is newest is no longer what was decided."""
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
    """Zero of everything that is counted here; of what no served kind uses nothing is said."""
    return {name: ZERO for resource in kinds.ALL for name in limits.names_for(resource)}


def _signed(amount: Quantity, sign: int) -> Quantity:
    return amount if sign > 0 else Quantity(-amount.nanos, amount.family)
