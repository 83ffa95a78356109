"""The claims that wait for a member of one pool, in the order in which they came; each operation is O(1).

There is room for as many as members are warming. When room shrinks, the youngest step outside and are woken to start cold;
they keep their place until they have asked, so a member that becomes ready, or room that comes back, is still theirs first.
"""

from __future__ import annotations

from collections import OrderedDict

from sandpool.controllers.assigner.facts import Claimant, Woken
from sandpool.model.metadata import Uid


class Line:
    def __init__(self) -> None:
        self._inside: OrderedDict[Uid, Claimant] = OrderedDict()
        self._outside: OrderedDict[Uid, Claimant] = OrderedDict()  # all of them younger than those inside

    def __len__(self) -> int:
        return len(self._inside) + len(self._outside)

    def __contains__(self, claim: object) -> bool:
        return claim in self._inside or claim in self._outside

    def inside(self, claim: Uid) -> bool:
        return claim in self._inside

    def join(self, claimant: Claimant, *, first: bool = False) -> None:
        """At the end or, for one that had been served already, at the front. Call `fit` afterwards."""
        if first or not self._outside:
            self._inside[claimant.uid] = claimant
        else:
            self._outside[claimant.uid] = claimant
        if first:
            self._inside.move_to_end(claimant.uid, last=False)

    def leave(self, claim: Uid) -> None:
        """Call `fit` afterwards: a place may be free."""
        self._inside.pop(claim, None)
        self._outside.pop(claim, None)

    def pop(self) -> Claimant | None:
        """The oldest."""
        for part in (self._inside, self._outside):
            if part:
                return part.popitem(last=False)[1]
        return None

    def fit(self, room: int) -> Woken:
        """As many inside as there is room for; the claims that had to step outside."""
        woken: list[Claimant] = []
        while len(self._inside) > room:
            uid, claimant = self._inside.popitem()
            self._outside[uid] = claimant
            self._outside.move_to_end(uid, last=False)
            woken.append(claimant)
        while self._outside and len(self._inside) < room:
            uid, claimant = self._outside.popitem(last=False)
            self._inside[uid] = claimant
        return tuple(woken)
