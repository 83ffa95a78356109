"""Bounds how many claims may wait for a sandbox. Beyond the bound a new claim gets 429 with the time to retry.

Claims are counted as the cache shows them, and namespaces share one total as they share the store: see base/shares.py. A refused claim
gets a Retry-After by which a place should be free for it, after all claims that were refused before it: so clients retry spread out, and none too early.

Admitting claims is work for the same event loop that makes their members. Once many claims wait for a pool, new ones are admitted only as fast as others are served: the
rest are held before they are stored, in the order in which they came.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from sandpool.base.shares import Shares
from sandpool.controllers.assigner.forecast import Outlook
from sandpool.kube.inline import Refusal
from sandpool.loop.cache import Cache
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import find
from sandpool.model.metadata import Uid
from sandpool.model.reasons import Reason, Type

CANNOT_WAIT: Final = "cannot wait for a sandbox now"
SOONEST: Final = 1
LATEST: Final = 30
"""Seconds: the bounds of Retry-After."""
MANY: Final = 500
"""From this many waiting claims of one pool on, new ones are admitted only as fast as others are served."""
AT_LEAST: Final = 100.0
"""Claims per second that are always admitted: so few cost little."""
LONGEST_PAUSE: Final = 10.0
"""Seconds that a claim is held before it is stored, at most: its client waits for the response."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many claims may wait, and for how long."""

    waiting: int = 10_000
    """Claims of all namespaces together that may wait for a sandbox at one time."""
    wait: float = 60.0
    """Seconds that a new claim may be expected to wait."""


_PENDING = (Reason.SANDBOX_MISSING, Reason.DEPENDENCIES_NOT_READY)  # the latter while its own sandbox starts


class Backlog:
    """Claims that wait, by namespace."""

    def __init__(self, claims: Cache[SandboxClaim], bounds: Bounds = Bounds()) -> None:
        self.bounds = bounds
        self.waiting = Shares(bounds.waiting)
        self._free_at: dict[Uid, float] = {}  # by pool: when all refused claims should have been retried
        self._taken_in: dict[Uid, float] = {}  # by pool: when all claims that were delayed are admitted
        claims.subscribe(self._step)

    def busy(self, namespace: str, pool: Uid, outlook: Outlook, now: float) -> Refusal | None:
        """Why a claim for which no member is ready cannot be admitted now; None: it can. `now` is a monotonic time."""
        wait = outlook.expected or 0.0  # an unknown wait is no reason
        if wait > self.bounds.wait:
            why = (
                f"a new claim of this pool is expected to wait {math.ceil(wait)} s, and may wait {self.bounds.wait:g} s"
            )
        elif not self.waiting.fits(namespace):
            why = f"{self.waiting.holds(namespace)} claims of namespace {namespace} wait for a sandbox, of {self.waiting.used} in all"
        else:
            return None
        return Refusal(self._come_back(pool, wait - self.bounds.wait, outlook.rate, now), f"{CANNOT_WAIT}: {why}")

    def pause(self, pool: Uid, outlook: Outlook, now: float) -> float:
        """Seconds to hold a claim for which no member is ready. Each claim is held longer than those before it."""
        if outlook.waiting < MANY:
            return 0.0
        if pool not in self._taken_in:
            self._taken_in = {each: at for each, at in self._taken_in.items() if at > now}
        last = max(self._taken_in.get(pool, now), now)
        self._taken_in[pool] = at = min(last + 1.0 / max(outlook.rate, AT_LEAST), now + LONGEST_PAUSE)
        return at - now

    def outside(self, pool: Uid, outlook: Outlook, now: float) -> Refusal | None:
        """The refusal of a claim that should be held and cannot be, because too many are: it may retry when those are admitted."""
        if outlook.waiting < MANY:
            return None
        why = f"{outlook.waiting} claims wait for this pool, and new ones are taken in as fast as these are served"
        paused = self._taken_in.get(pool, now) - now
        return Refusal(self._come_back(pool, paused, max(outlook.rate, AT_LEAST), now), f"{CANNOT_WAIT}: {why}")

    def _come_back(self, pool: Uid, over: float, rate: float, now: float) -> int:
        """Retry-After: seconds until a place is expected to be free for one more refused claim."""
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
    """Whether the claim waits for a sandbox. One that was refused, or has ended, waits for a person to act, and does not count."""
    if claim.status.sandbox is not None or claim.metadata.leaving:
        return False
    ready = find(claim.status.conditions, Type.READY)
    return ready is None or ready.reason in _PENDING
