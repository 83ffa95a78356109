"""Runs the controllers of a simulation: starts, kills and replaces leaders, and lets two of them lead at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random

from sandpool.app.controllers import ControllerOptions
from sandpool.controllers.pool.options import Options as PoolOptions
from sandpool.controllers.sandbox.options import Options as SandboxOptions
from sandpool.model.kinds import CLAIMS
from sandpool.simulation.faults import Fault, Faults
from sandpool.simulation.leader import InlineLeader, Leader
from sandpool.simulation.referee import Referee
from sandpool.simulation.seeded_loop import RandomStreams
from sandpool.simulation.world import World
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory

_LIFE = 12.0
"""Seconds that a leader lives on average, where the seed has crashes."""


class Operator:
    """Keeps one leader running, and sometimes two."""

    def __init__(self, world: World, faults: Faults, streams: RandomStreams, pace: float, referee: Referee) -> None:
        self.leaders: list[Leader] = []  # all there ever were
        self.metrics = Metrics()
        self.overlap: Callable[[], object] = lambda: None  # called when two begin to lead
        self._world = world
        self._faults = faults
        self._streams = streams
        self._pace = pace
        self._referee = referee
        self._chance: Random = streams.of("operator")
        self.options = _options(self._chance, streams.of("release"))
        self.inline = self._chance.random() < 0.5  # whether controllers share the server's process, as on one machine
        self.mean_life = self._chance.choice((0.0, _LIFE, _LIFE, 2 * _LIFE))

    @property
    def current(self) -> Leader:
        return self.leaders[-1]

    def start(self) -> Leader:
        name = f"leader-{len(self.leaders) + 1}"
        leader = Leader(
            name,
            self._world,
            self._faults,
            self._streams.of(name),
            self._pace,
            self._referee,
            ReconcileHistory(),
            self.metrics,
            self.options,
        )
        self._referee.follow(leader)
        if self.inline:
            self._world.objects.hooks.register(CLAIMS, InlineLeader(self._world, leader, self._referee))
        self.leaders.append(leader)
        return leader

    async def run(self) -> None:
        """For ever: one leader after the other. Once faults are off, the one that leads stays."""
        self.start()
        while True:
            life = self._chance.expovariate(1 / self.mean_life) if self.mean_life else 1e9
            if not await self._ended(self.current, life) and self._faults.on:
                await self._replace(self.current)
            if not self.current.alive:
                await asyncio.sleep(self._chance.choice((0.0, 0.1, 1.0, 3.0)))
                self.start()

    async def _replace(self, old: Leader) -> None:
        how = self._chance.choice((Fault.CRASH, Fault.CRASH, Fault.TWO_LEADERS, Fault.STOP))
        self._faults.happened(how)
        if how is Fault.CRASH:
            old.kill()
        elif how is Fault.STOP:
            old.stop()
        else:
            self.start()
            self.overlap()
            await self._ended(old, self._chance.random() * 4)
            old.kill()
        await old.ended.wait()

    async def _ended(self, leader: Leader, seconds: float) -> bool:
        """Whether it ended by itself within that time."""
        try:
            async with asyncio.timeout(seconds):
                await leader.ended.wait()
        except TimeoutError:
            return False
        return True

    def repairs(self) -> float:
        """How many repairs audits have made."""
        samples = (sample for family in self.metrics.repairs.collect() for sample in family.samples)
        return float(sum(sample.value for sample in samples if sample.name.endswith("_total")))


def _options(chance: Random, release: Random) -> ControllerOptions:
    """Shorter times than in production, because a run is short; sometimes a hold and a rate limit. Released sandboxes are left to the garbage
    collector, as on one machine, or to whichever is first."""
    pool = PoolOptions(
        readiness_grace=chance.choice((15.0, 40.0)),
        longest_grace=60.0,
        replenish_delay=chance.choice((0.0, 0.0, 0.0, 1.0)),
        refill_rate=chance.choice((0.0, 0.0, 0.0, 2.0)),
    )
    after, in_hand = release.choice(((None, 0.0), (0.0, 0.0), (0.25, 2.0)))
    pool = replace(pool, most_warming=release.choice((0, 0, 2)))
    return ControllerOptions(pool=pool, sandbox=SandboxOptions(release_after=after, release_in_hand=in_hand))
