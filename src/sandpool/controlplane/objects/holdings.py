"""What each namespace holds of the store, and how much of it a tenant may add. The rules are those of base/shares.py.

Counted are the newest states of all objects, whoever wrote them, as they are decided: an object's bytes go to its namespace, those of a
kind without namespaces to the operator. Refused are only writes on a tenant's account, and whatever controllers make because a tenant
wants it, whoever writes that: a small pool makes many large sandboxes. A write that makes an object smaller passes, a status always does,
and nothing here is asked about a delete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from sandpool.base.shares import OPERATOR, Shares
from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.keys import parse_key
from sandpool.controlplane.objects.write_pace import Pace, Rate
from sandpool.controlplane.store.port import Encode, Store
from sandpool.controlplane.store.record import Change, Record
from sandpool.kube.errors import ApiError
from sandpool.model.kinds import NETWORK_POLICIES, PERSISTENT_VOLUME_CLAIMS, PODS, SANDBOXES, SERVICES
from sandpool.model.metadata import Revision
from sandpool.model.resource import Resource

MIB: Final = 1024 * 1024
RATE: Final = Rate(64 * MIB, 4 * MIB)
"""Of bytes of all states: each is kept for a while, whatever replaces it."""
MADE: Final = frozenset(kind.plural for kind in (SANDBOXES, PODS, PERSISTENT_VOLUME_CLAIMS, SERVICES, NETWORK_POLICIES))
"""Kinds that controllers make of what a tenant wrote."""
SLACK: Final = 16 * 1024
"""Bytes by which a controller may change one of them, however full its namespace is: it marks, labels and hands over."""


@dataclass(frozen=True, slots=True)
class HoldingLimits:
    """Of all tenants together."""

    sandboxes: int = 20_000  # and as many pods
    objects: int = 100_000
    size: int = 256 * MIB  # bytes of their newest states, all of which are in memory
    writes: Rate = RATE


class Holdings:
    def __init__(self, store: Store, limits: HoldingLimits, now: Callable[[], datetime]) -> None:
        self._now = now
        self.sandboxes = Shares(limits.sandboxes)
        self.pods = Shares(limits.sandboxes)
        self.objects = Shares(limits.objects)
        self.size = Shares(limits.size)
        self.writes = Pace(limits.writes)
        self._running = {SANDBOXES.plural: self.sandboxes, PODS.plural: self.pods}
        self.settle = store.count_with(self.count)

    @property
    def shares(self) -> dict[str, Shares]:
        """By the words of metrics."""
        return {
            "sandboxes": self.sandboxes,
            "pods": self.pods,
            "objects": self.objects,
            "stored_bytes": self.size,
            "written_bytes": self.writes.shares,
        }

    def count(self, changes: Sequence[Change], sign: int) -> None:
        """Hears of every write."""
        grown: dict[str, int] = {}
        for change in changes:
            record, previous = change.record, change.previous
            _, plural, *rest = record.key.split("/")
            namespace = rest[0] if len(rest) == 2 else OPERATOR
            size = 0 if change.deleted else len(record.value)
            if previous is not None:
                size -= len(previous.value)
            grown[namespace] = grown.get(namespace, 0) + size * sign
            if previous is None or change.deleted:
                more = -sign if change.deleted else sign
                self.objects.take(namespace, more)
                running = self._running.get(plural)
                if running is not None:
                    running.take(namespace, more)
        for namespace, more in grown.items():
            if more:
                self.size.take(namespace, more)

    def check_new(self, resource: Resource[Any], namespace: str, name: str, tenant: str) -> None:
        """Forbidden, if the namespace has no room for one more object of that kind."""
        made = resource.plural in MADE
        if not made and not tenant:
            return
        self.settle()
        running = self._running.get(resource.plural)
        if running is not None and running.used >= running.easy and not running.fits(namespace):
            raise self._exceeded(resource, name, resource.plural, running, namespace, 1)
        objects, size = self.objects, self.size
        if objects.used >= objects.easy and not objects.fits(namespace):
            raise self._exceeded(resource, name, "objects", objects, namespace, 1)
        if (
            made and size.used >= size.easy and not size.fits(namespace)
        ):  # how large it is, is not known yet: one may be too large
            raise self._exceeded(resource, name, "bytes", size, namespace, 1)

    def guarded(self, encode: Encode, key: str, current: Record | None, tenant: str) -> Encode:
        """The same encoding, for a tenant: Forbidden or TooManyRequests if what it makes is too much."""
        return partial(self._encode, encode, key, 0 if current is None else len(current.value), tenant)

    def bounded(self, encode: Encode, key: str, current: Record, namespace: str) -> Encode:
        """The same encoding of something that a controller changes: Forbidden if its namespace has no room for much more of it."""
        return partial(self._encode_bounded, encode, key, len(current.value), namespace)

    def _encode_bounded(self, encode: Encode, key: str, before: int, namespace: str, revision: Revision) -> bytes:
        value = encode(revision)
        grown = len(value) - before
        self.settle()
        if grown > SLACK and not self.size.fits(namespace, grown):
            raise self._exceeded_by(key, grown, namespace)
        return value

    def _encode(self, encode: Encode, key: str, before: int, tenant: str, revision: Revision) -> bytes:
        value = encode(revision)
        grown = len(value) - before
        self.settle()
        if grown > 0 and not self.size.fits(tenant, grown):
            raise self._exceeded_by(key, grown, tenant)
        wait = self.writes.charge(tenant, len(value), self._now().timestamp())
        if wait:
            raise refusals.too_fast(tenant, wait)
        return value

    def _exceeded_by(self, key: str, grown: int, tenant: str) -> ApiError:
        found = parse_key(key)
        assert found is not None
        resource, _, name = found
        return self._exceeded(resource, name, "bytes", self.size, tenant, grown)

    def _exceeded(
        self, resource: Resource[Any], name: str, what: str, shares: Shares, namespace: str, more: int
    ) -> ApiError:
        flag = _FLAGS[what]
        held = shares.holds(namespace)
        return refusals.exceeded_share(resource, name, namespace, what, (more, held, shares.limit(namespace)), flag)


_FLAGS: Final = {
    "sandboxes": "--max-sandboxes",
    "pods": "--max-sandboxes",
    "objects": "--max-objects",
    "bytes": "--max-stored-bytes",
}
