"""How many claims wait for a sandbox, and whether one more may. Beyond a bound a server says when to come back (429).

Claims are counted as the cache shows them, and share one total by namespace as stored objects do: see base/shares.py. Whoever is turned away is
told when a place is expected to be free for it, after all those that were turned away before: they come back apart, and none too early.

Taking claims in is work, too, for the same event loop that makes their members. Once many wait for a pool, its new ones are taken in as fast as others are served: the
rest wait outside, in the order in which they came.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from sandpool.base.shares import Shares
from sandpool.controllers.assigner.forecast import Outlook
from sandpool.kube.outright import Busy
from sandpool.loop.cache import Cache
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import find
from sandpool.model.metadata import Uid
from sandpool.model.reasons import Reason, Type

SOONEST: Final = 1
LATEST: Final = 30
"""Seconds: whoever is turned away is never told less, or more."""
MANY: Final = 500
"""Claims that wait for one pool, from which on new ones are taken in only as fast as others are served."""
AT_LEAST: Final = 100.0
"""Claims a second that are taken in all the same. So few cost little."""
LONGEST_PAUSE: Final = 10.0
"""Seconds that a claim is kept outside: a client waits for an answer."""


@dataclass(frozen=True, slots=True)
class Bounds:
    waiting: int = 10_000
    """Claims of all namespaces together that may wait for a sandbox at one time."""
    wait: float = 60.0
    """Seconds that a new claim may be expected to wait."""


_PENDING = (Reason.SANDBOX_MISSING, Reason.DEPENDENCIES_NOT_READY)  # the latter while a sandbox of its own starts


class Backlog:
    """Claims that wait, by namespace."""

    def __init__(self, claims: Cache[SandboxClaim], bounds: Bounds = Bounds()) -> None:
        self.bounds = bounds
        self.waiting = Shares(bounds.waiting)
        self._free_at: dict[Uid, float] = {}  # by pool: when all who were turned away should have come back
        self._taken_in: dict[Uid, float] = {}  # by pool: when all who were told to pause are taken in
        claims.subscribe(self._step)

    def busy(self, namespace: str, pool: Uid, outlook: Outlook, now: float) -> Busy | None:
        """Why a claim that no member is ready for cannot be taken in now; None: it can. `now` is a monotonic time."""
        wait = outlook.expected or 0.0  # what nobody can say is no reason
        if wait > self.bounds.wait:
            why = (
                f"a new claim of this pool is expected to wait {math.ceil(wait)} s, and may wait {self.bounds.wait:g} s"
            )
        elif not self.waiting.fits(namespace):
            why = f"{self.waiting.holds(namespace)} claims of namespace {namespace} wait for a sandbox, of {self.waiting.used} in all"
        else:
            return None
        return Busy(self._come_back(pool, wait - self.bounds.wait, outlook.rate, now), why)

    def pause(self, pool: Uid, outlook: Outlook, now: float) -> float:
        """Seconds before a claim that no member is ready for is looked at. Each that asks is behind all that did before."""
        if outlook.waiting < MANY:
            return 0.0
        if pool not in self._taken_in:
            self._taken_in = {each: at for each, at in self._taken_in.items() if at > now}
        last = max(self._taken_in.get(pool, now), now)
        self._taken_in[pool] = at = min(last + 1.0 / max(outlook.rate, AT_LEAST), now + LONGEST_PAUSE)
        return at - now

    def outside(self, pool: Uid, outlook: Outlook, now: float) -> Busy | None:
        """Of a claim that would have to pause and cannot, because as many do as may: when those are taken in, and all who came back before it."""
        if outlook.waiting < MANY:
            return None
        why = f"{outlook.waiting} claims wait for this pool, and new ones are taken in as fast as these are served"
        paused = self._taken_in.get(pool, now) - now
        return Busy(self._come_back(pool, paused, max(outlook.rate, AT_LEAST), now), why)

    def _come_back(self, pool: Uid, over: float, rate: float, now: float) -> int:
        """Seconds until a place is expected to be free for one more who was turned away."""
        step = 1.0 / rate if rate > 0.0 else float(LATEST)
        if pool not in self._free_at:
            self._free_at = {each: at for each, at in self._free_at.items() if at > now}
        free_at = min(max(max(self._free_at.get(pool, now), now) + step, now + over), now + LATEST)
        self._free_at[pool] = free_at
        return max(SOONEST, min(LATEST, math.ceil(free_at - now)))

    def _step(self, old: SandboxClaim | None, new: SandboxClaim | None) -> None:
        before, after = old is not None and waits(old), new is not None and waits(new)
        if before is not after:
            one = new if new is not None else old
            assert one is not None
            self.waiting.take(one.metadata.namespace, 1 if after else -1)


def waits(claim: SandboxClaim) -> bool:
    """Whether the claim looks for a sandbox. One that was refused, or has ended, waits for somebody to act, and takes nobody's place."""
    if claim.status.sandbox is not None or claim.metadata.leaving:
        return False
    ready = find(claim.status.conditions, Type.READY)
    return ready is None or ready.reason in _PENDING
