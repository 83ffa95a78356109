"""Decides how much of a bounded resource each tenant may hold when several want it. Pure counting; nothing here waits.

`Shares` counts what each tenant holds of one resource and decides which tenant may have more, by one of two rules. Under both, a
single tenant may use (nearly) everything, and no tenant can lock the others out:

- **Fair share with preemption** (`ask`), for units that can be taken back, such as a watch or an idle connection. While there is
  room, every tenant is admitted. When there is none, a tenant below its fair share (the total divided by the tenants that hold
  something) gets a unit that is revoked from the tenant that holds the most; a tenant at or above its fair share is refused.
- **Dynamic threshold** (`fits`), for units that cannot be taken back, such as stored bytes: a tenant may hold at most ALPHA times what
  is still free (Choudhury and Hahne, 1998). A single tenant stops at ALPHA / (ALPHA + 1) of the total; the remainder is for the next one.

The operator (the admin and Sandpool's own components) is not a tenant. It has an equal amount of its own, which tenants can neither use
nor exhaust.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

OPERATOR: Final = ""
"""The holder that is not a tenant."""
NOBODY: Final = "system:anonymous"
"""The tenant of unauthenticated requests. No namespace can have this name."""
ALPHA: Final = 8


class Decision(Enum):
    """Whether a tenant gets a unit."""

    ADMIT = "admit"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Revoke:
    """Admit, after taking one unit back from this tenant."""

    holder: str


class Shares:
    """What tenants hold of one resource. `refused` and `revoked` count for metrics."""

    __slots__ = ("easy", "held", "own", "refused", "revoked", "total", "used")

    def __init__(self, total: int) -> None:
        self.total = total
        self.easy = max(
            0, ALPHA * (total - 1) // (ALPHA + 1)
        )  # while less than this is in use, one more unit fits for any tenant
        self.used = 0  # by all tenants
        self.own = 0  # by the operator
        self.held: dict[str, int] = {}  # by tenant; only those that hold something
        self.refused = 0
        self.revoked = 0

    def take(self, holder: str, amount: int = 1) -> None:
        """Counts an amount without applying the rules; a negative amount gives back."""
        if not holder:
            self.own += amount
            return
        self.used += amount
        left = self.held.get(holder, 0) + amount
        if left:
            self.held[holder] = left
        else:
            self.held.pop(holder, None)

    def holds(self, holder: str) -> int:
        return self.held.get(holder, 0) if holder else self.own

    def fair(self, holder: str) -> int:
        """The fair share of a tenant that wants something; at least one unit."""
        others = len(self.held) - (holder in self.held)
        return max(1, self.total // (others + 1))

    def ask(self, holder: str) -> Decision | Revoke:
        """Decides about one more unit under the rule with preemption."""
        if not holder:
            return Decision.ADMIT if self.own < self.total else self._refuse()
        if self.used < self.total:
            return Decision.ADMIT
        largest = max(self.held, key=self.held.__getitem__, default="")
        mine = self.held.get(holder, 0)
        if mine < self.fair(holder) and largest and mine + 1 < self.held[largest]:
            self.revoked += 1
            return Revoke(largest)
        return self._refuse()

    def room(self, holder: str) -> int:
        """How much more the holder may have under the dynamic threshold."""
        if not holder:
            return self.total - self.own
        free, mine = self.total - self.used, self.held.get(holder, 0)
        more = (ALPHA * free - mine) // (ALPHA + 1)
        if more <= 0:
            return 1 if free > 0 and not mine else 0  # the last unit is for a tenant that has none
        return more

    def fits(self, holder: str, amount: int = 1) -> bool:
        if amount <= self.room(holder):
            return True
        self._refuse()
        return False

    def limit(self, holder: str) -> int:
        """What a tenant may hold at the moment, under the rule of `fits`."""
        return self.holds(holder) + max(0, self.room(holder))

    def _refuse(self) -> Decision:
        self.refused += 1
        return Decision.REFUSE
