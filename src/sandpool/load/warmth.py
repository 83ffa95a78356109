"""Tracks sandboxes from one watch: how full the pool is, and which claims were served warm.

A claim is warm if it got a member of a pool, even one that was created while the claim waited, and cold if a sandbox was started for
it. A label of the sandbox says which. Without the label, a sandbox with the name of the claim was started for it, and any other came
from the pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from sandpool.kube.api import EventType
from sandpool.load.observed import SeenObject
from sandpool.model.labels import LaunchType


class Warmth:
    def __init__(self, pools: Collection[str]) -> None:
        """`pools` are hashes of names, as members carry them."""
        self._pools = pools
        self._ready: set[str] = set()
        self.launched: dict[str, bool] = {}  # whether for a pool, where the sandbox says so
        self.levels: list[tuple[float, int]] = []  # moment by the clock, members that can be claimed
        self._changed = asyncio.Event()

    def heard(self, change: EventType, sandbox: SeenObject, at: float) -> None:
        name = sandbox.metadata.name
        if (launch := sandbox.launch_type) and name not in self.launched:
            self.launched[name] = launch == LaunchType.WARM
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
        """Waits until there are that many again, without those that claims got: this watch may lag behind that of claims. Returns the time."""
        gone = set(handed_out)
        while len(self._ready) < members or not gone.isdisjoint(self._ready):
            self._changed.clear()
            await self._changed.wait()
        return self.levels[-1][0] if self.levels else 0.0


def is_warm(claim: str, sandbox: str, launched: Mapping[str, bool]) -> bool | None:
    """None: the claim was not served."""
    if not sandbox:
        return None
    return launched.get(sandbox, sandbox != claim)
