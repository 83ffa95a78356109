"""How fast tenants may write: a budget that drains at a steady rate, and that they share.

What was written lately fills the budget; it drains by so many bytes a second, evenly for all who wrote. How much of the rest a tenant
may take is `Shares.fits`: one tenant alone has nearly all of the burst and all of the rate, and always leaves room for another.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from sandpool.base.shares import Shares

STEP: Final = 0.05
"""Seconds between two drains: not for every write."""
SHORTEST, LONGEST = 1, 30


@dataclass(frozen=True, slots=True)
class Rate:
    burst: int  # bytes
    per_second: int


class Pace:
    def __init__(self, rate: Rate) -> None:
        self.shares = Shares(rate.burst)
        self._rate = rate
        self._drained = 0.0  # when

    def charge(self, tenant: str, amount: int, now: float) -> int:
        """0 if that may be written now, and it is counted; otherwise after how many seconds to try again."""
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
        ):  # the smallest first: what they do not need is for the others
            part = min(level, left // waiting)
            waiting -= 1
            left -= part
            if part:
                self.shares.take(tenant, -part)


def _level(item: tuple[str, int]) -> int:
    return item[1]
