"""Which sandboxes there are and since when, heard from one watch: how full the pool is, and which claims were served warm.

A claim is warm if its sandbox came to be before the claim did, by the revisions of the server. Where they are not known, a
sandbox that has the claim's own name was started for it, and any other came from the pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from sandpool.kube.api import EventType
from sandpool.load.seen import SeenObject


class Warmth:
    def __init__(self, pools: Collection[str]) -> None:
        """`pools` are hashes of names, as members carry them."""
        self._pools = pools
        self._ready: set[str] = set()
        self.born: dict[str, int] = {}
        self.levels: list[tuple[float, int]] = []  # moment by the clock, members that can be claimed
        self._changed = asyncio.Event()

    def heard(self, change: EventType, sandbox: SeenObject, at: float) -> None:
        name = sandbox.metadata.name
        self.born.setdefault(name, sandbox.metadata.revision)
        claimable = change is not EventType.DELETED and sandbox.is_ready and sandbox.pool_hash in self._pools
        if claimable == (name in self._ready):
            return
        if claimable:
            self._ready.add(name)
        else:
            self._ready.discard(name)
        if self.levels and self.levels[-1][0] == at:
            self.levels.pop()
        self.levels.append((at, len(self._ready)))
        self._changed.set()

    async def full(self, members: int, handed_out: Iterable[str]) -> float:
        """Waits until there are that many again, and none of those that claims got is still among them: this watch may be
        behind that of claims. Answers the moment by the clock."""
        gone = set(handed_out)
        while len(self._ready) < members or not gone.isdisjoint(self._ready):
            self._changed.clear()
            await self._changed.wait()
        return self.levels[-1][0] if self.levels else 0.0


def is_warm(claim: str, sandbox: str, claimed_at: int, born: Mapping[str, int]) -> bool | None:
    """`claimed_at` is the revision at which the claim came to be, 0 if that is not known."""
    if not sandbox:
        return None
    made_at = born.get(sandbox, 0)
    if made_at and claimed_at:
        return made_at < claimed_at
    return sandbox != claim
