"""What the clusters of these tests have in common: one controller in virtual time, and what it did."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from sandpool.kube.api import WRITES
from sandpool.telemetry.metrics import OUTCOMES, Metrics
from support.api.counting_api import CountingApi


class Controlled:
    kind: ClassVar[str]
    """The controller's name in metrics."""
    counted: CountingApi
    metrics: Metrics
    controller: Any

    async def settle(self, seconds: float = 0.01) -> None:
        await asyncio.sleep(seconds)
        await self.controller.loop.queue.drained()

    @property
    def writes(self) -> list[str]:
        return [f"{made.verb} {made.resource}" for made in self.counted.calls if made.verb in WRITES]

    @property
    def refused(self) -> list[str]:
        return [made.outcome for made in self.counted.calls if made.outcome != "ok"]

    @property
    def reconciles(self) -> int:
        return int(sum(self.reconciled(outcome) for outcome in OUTCOMES))

    def reconciled(self, outcome: str) -> float:
        told = {"controller": self.kind, "outcome": outcome}
        return self.metrics.registry.get_sample_value("sandpool_reconciles_total", told) or 0
