"""Limits how much of the store each namespace holds, and how fast tenants may write. The rules are those of base/shares.py.

The newest state of every object counts as soon as it is decided, whoever wrote it: an object's bytes count for its namespace, those of
cluster-scoped kinds for the operator. What it takes in memory counts as well (memory_size.py). Only two kinds of writes are refused: those of a tenant, and those that controllers make on behalf of a
tenant, because a small pool object can cause many large sandboxes. A write that makes an object smaller, a controller's write of a status, and
a delete are never refused here.

The write rate is a budget that all tenants share. Writes fill it, and it drains at a steady rate, evenly for all tenants that wrote. `Shares.fits`
says how much of the rest one tenant may take: a single tenant gets nearly all of the burst and all of the rate, but always leaves room for another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import ceil
from typing import Any, Final

from sandpool.base.shares import OPERATOR, Shares
from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.keys import parse_key
from sandpool.controlplane.objects.memory_size import memory_size
from sandpool.controlplane.store.port import Encode, Store
from sandpool.controlplane.store.record import Change, Record
from sandpool.kube.errors import ApiError
from sandpool.model.kinds import (
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    POOLS,
    SANDBOXES,
    SERVICES,
    TEMPLATES,
)
from sandpool.model.metadata import Revision
from sandpool.model.resource import Resource

STEP: Final = 0.05
"""Seconds between two drains, so that not every write drains the budget."""
SHORTEST, LONGEST = 1, 30


@dataclass(frozen=True, slots=True)
class Rate:
    """How many bytes tenants may write."""

    burst: int  # bytes
    per_second: int


class Pace:
    """The budget of written bytes that tenants share."""

    def __init__(self, rate: Rate) -> None:
        self.shares = Shares(rate.burst)
        self._rate = rate
        self._drained = 0.0  # time of the last drain

    def charge(self, tenant: str, amount: int, now: float) -> int:
        """Charges a write and returns 0 if it may happen now; otherwise returns after how many seconds to retry."""
        if now - self._drained >= STEP or now < self._drained:
            self._drain(now)
        if self.shares.fits(tenant, amount):
            self.shares.take(tenant, amount)
            return 0
        others = len(self.shares.held) or 1
        missing = amount - self.shares.room(tenant)
        return max(SHORTEST, min(LONGEST, ceil(missing * others / self._rate.per_second)))

    def _drain(self, now: float) -> None:
        elapsed, self._drained = max(0.0, now - self._drained), now
        held = self.shares.held
        left = min(int(elapsed * self._rate.per_second), self.shares.used)
        waiting = len(held)
        for tenant, level in sorted(
            held.items(), key=_level
        ):  # smallest first: what they do not need goes to the others
            part = min(level, left // waiting)
            waiting -= 1
            left -= part
            if part:
                self.shares.take(tenant, -part)


def _level(item: tuple[str, int]) -> int:
    return item[1]


MIB: Final = 1024 * 1024
RATE: Final = Rate(64 * MIB, 4 * MIB)
"""For all written bytes, not only growth: the history keeps replaced states for a while."""
MADE: Final = frozenset(kind.plural for kind in (SANDBOXES, PODS, PERSISTENT_VOLUME_CLAIMS, SERVICES, NETWORK_POLICIES))
"""Kinds that controllers create on behalf of a tenant."""
FEW: Final = {POOLS.plural: 50, TEMPLATES.plural: 50, NETWORK_POLICIES.plural: 10}
"""Kinds of which there may be only one for so many objects: a change of one of them, or of what they refer to, concerns many others at once."""
FEWEST: Final = 16
SLACK: Final = 16 * 1024
"""Bytes by which a controller may grow one of them, however full its namespace is, to mark, label and transfer it."""
MULTIPLE: Final = 4
"""Objects of tenants may take this many times `size` in memory. Small ones, such as usual sandboxes, count for about eight times their bytes."""


MOST_DENSE: Final = 128
"""No object takes so many times its bytes in memory."""


@dataclass(frozen=True, slots=True)
class HoldingLimits:
    """Limits of all tenants together."""

    sandboxes: int = 20_000  # and as many pods
    objects: int = 100_000  # of some kinds only a part of it: see FEW
    size: int = 256 * MIB  # bytes of their newest states, all of which are in memory
    writes: Rate = RATE


class Holdings:
    """Counts what each namespace holds of the store, and refuses writes beyond its share."""

    def __init__(self, store: Store, limits: HoldingLimits, now: Callable[[], datetime]) -> None:
        self._now = now
        self.sandboxes = Shares(limits.sandboxes)
        self.pods = Shares(limits.sandboxes)
        self.objects = Shares(limits.objects)
        self.size = Shares(limits.size)
        self.memory = Shares(MULTIPLE * limits.size)
        self.writes = Pace(limits.writes)
        self.few = {plural: Shares(max(FEWEST, limits.objects // part)) for plural, part in FEW.items()}
        self._by_kind = {SANDBOXES.plural: self.sandboxes, PODS.plural: self.pods, **self.few}
        self.settle = store.count_with(self.count)

    @property
    def shares(self) -> dict[str, Shares]:
        """All shares, by the label that metrics use."""
        return {
            "sandboxes": self.sandboxes,
            "pods": self.pods,
            "objects": self.objects,
            **self.few,
            "stored_bytes": self.size,
            "object_memory_bytes": self.memory,
            "written_bytes": self.writes.shares,
        }

    def count(self, changes: Sequence[Change], sign: int) -> None:
        """Counts changes; the store calls it for every write."""
        grown: dict[str, tuple[int, int]] = {}
        for change in changes:
            record, previous = change.record, change.previous
            _, plural, *rest = record.key.split("/")
            namespace = rest[0] if len(rest) == 2 else OPERATOR
            size = memory = 0
            if not change.deleted:
                size, memory = len(record.value), memory_size(plural, record.value)
            if previous is not None:
                size -= len(previous.value)
                memory -= memory_size(plural, previous.value)
            before = grown.get(namespace, (0, 0))
            grown[namespace] = before[0] + size * sign, before[1] + memory * sign
            if previous is None or change.deleted:
                more = -sign if change.deleted else sign
                self.objects.take(namespace, more)
                running = self._by_kind.get(plural)
                if running is not None:
                    running.take(namespace, more)
        for namespace, (size, memory) in grown.items():
            if size:
                self.size.take(namespace, size)
            if memory:
                self.memory.take(namespace, memory)

    def check_new(self, resource: Resource[Any], namespace: str, name: str, tenant: str) -> None:
        """Raises Forbidden if the namespace has no room for one more object of that kind."""
        made = resource.plural in MADE
        if not made and not tenant:
            return
        self.settle()
        running = self._by_kind.get(resource.plural)
        if running is not None and running.used >= running.easy and not running.fits(namespace):
            raise self._exceeded(resource, name, resource.plural, running, namespace, 1)
        objects, size = self.objects, self.size
        if objects.used >= objects.easy and not objects.fits(namespace):
            raise self._exceeded(resource, name, "objects", objects, namespace, 1)
        if made and size.used >= size.easy and not size.fits(namespace):  # its size is not known yet
            raise self._exceeded(resource, name, "bytes", size, namespace, 1)
        memory = self.memory
        if made and memory.used >= memory.easy and not memory.fits(namespace):
            raise self._exceeded(resource, name, "memory", memory, namespace, 1)

    @property
    def scarce(self) -> bool:
        """Whether so much is held that also what controllers add is limited."""
        return self.size.used >= self.size.easy // 2 or self.memory.used >= self.memory.easy // 2

    def guarded(self, encode: Encode, key: str, current: Record | None, tenant: str) -> Encode:
        """Wraps the encoding of a tenant's write: raises Forbidden or TooManyRequests if the result is beyond its share."""
        return partial(self._encode, encode, key, b"" if current is None else current.value, tenant)

    def bounded(self, encode: Encode, key: str, current: Record, namespace: str) -> Encode:
        """Wraps the encoding of a controller's write: raises Forbidden if the object grows a lot and its namespace has no room."""
        return partial(self._encode_bounded, encode, key, current.value, namespace)

    def _encode_bounded(self, encode: Encode, key: str, before: bytes, namespace: str, revision: Revision) -> bytes:
        value = encode(revision)
        if len(value) - len(before) > SLACK:
            self._check_growth(key, before, value, namespace)
        return value

    def _encode(self, encode: Encode, key: str, before: bytes, tenant: str, revision: Revision) -> bytes:
        value = encode(revision)
        self._check_growth(key, before, value, tenant)
        wait = self.writes.charge(tenant, len(value), self._now().timestamp())
        if wait:
            raise refusals.too_fast(tenant, wait)
        return value

    def _check_growth(self, key: str, before: bytes, value: bytes, namespace: str) -> None:
        self.settle()
        grown = len(value) - len(before)
        if grown > 0 and not self.size.fits(namespace, grown):
            raise self._exceeded_by(key, "bytes", self.size, grown, namespace)
        if self.memory.used + MOST_DENSE * len(value) < self.memory.easy:
            return  # it fits, whatever is in it
        plural = key.split("/", 2)[1]
        grown = memory_size(plural, value) - (memory_size(plural, before) if before else 0)
        if grown > 0 and not self.memory.fits(namespace, grown):
            raise self._exceeded_by(key, "memory", self.memory, grown, namespace)

    def _exceeded_by(self, key: str, what: str, shares: Shares, grown: int, namespace: str) -> ApiError:
        found = parse_key(key)
        assert found is not None
        resource, _, name = found
        return self._exceeded(resource, name, what, shares, namespace, grown)

    def _exceeded(
        self, resource: Resource[Any], name: str, what: str, shares: Shares, namespace: str, more: int
    ) -> ApiError:
        flag = _FLAGS[what]
        held = shares.holds(namespace)
        return refusals.exceeded_share(resource, name, namespace, what, (more, held, shares.limit(namespace)), flag)


_FLAGS: Final = {
    **dict.fromkeys(FEW, "--max-objects"),
    "sandboxes": "--max-sandboxes",
    "pods": "--max-sandboxes",
    "objects": "--max-objects",
    "bytes": "--max-stored-bytes",
    "memory": "--max-stored-bytes",
}
