"""Electors under arbitrary schedules: late requests, lost answers, partitions, crashes, clocks that run at different speeds.

Never two leaders; and once the faults are over, one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sandpool.base.clock import LoopClock, Timer
from sandpool.kube.api import Api, Call
from sandpool.kube.errors import Refused, Unreachable
from sandpool.kube.interceptors import Interceptor
from sandpool.loop.errors import LeadershipLost
from sandpool.loop.lease import Elector
from sandpool.telemetry.metrics import Metrics
from support.clocks.virtual_loop import run_virtually
from support.simulated.loop_cluster import START, a_cluster

STORM = 120.0
CALM = 60.0


class SkewedClock:
    """A machine whose quartz is too fast or too slow."""

    def __init__(self, rate: float) -> None:
        self._clock = LoopClock(START)
        self._rate = rate

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return self._clock.monotonic() * self._rate

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds / self._rate)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return self._clock.call_later(seconds / self._rate, callback)


class Network(Interceptor):
    """The way to the server. A request that was sent goes on although its sender has given up."""

    def __init__(self, api: Api, rng: random.Random, severity: float) -> None:
        super().__init__(api)
        self._rng = rng
        self._severity = severity
        self._cut_until = 0.0
        self.calm = False
        self.under_way: set[asyncio.Task[Any]] = set()

    async def send(self, call: Call) -> Any:
        task = asyncio.create_task(self._travel(call))
        self.under_way.add(task)
        task.add_done_callback(self._arrived)
        return await asyncio.shield(task)

    def _arrived(self, task: asyncio.Task[Any]) -> None:
        self.under_way.discard(task)
        if not task.cancelled():
            task.exception()  # its sender may have left: that is no error of this test

    async def _travel(self, call: Call) -> Any:
        now = asyncio.get_running_loop().time()
        if not self.calm:
            if now < self._cut_until or self._rng.random() < 0.1 * self._severity:
                raise Refused("no route")
            if self._rng.random() < 0.1 * self._severity:
                self._cut_until = now + self._rng.choice([3, 9, 14, 30])
            await asyncio.sleep(self._delay())
        answer = await self.inner.send(call)
        if not self.calm:
            await asyncio.sleep(self._delay())
            if self._rng.random() < 0.15 * self._severity:
                raise Unreachable("the answer was lost")
        return answer

    def _delay(self) -> float:
        return self._rng.choice([0, 0, 0.01, 0.1, 0.5, *([2, 5, 9, 13] if self._rng.random() < self._severity else [])])


class Watched(Elector):
    """Leadership begins only here; overlapping with another's means two leaders."""

    all: list[Watched]

    def _lead_from(self, sent: float, moment: datetime) -> None:
        super()._lead_from(sent, moment)
        if self.leading:
            others = [other.identity for other in self.all if other is not self and other.leading]
            assert not others, f"{self.identity} leads, and so does {others}"


async def process(number: int, network: Network, rng: random.Random, rate: float, electors: list[Watched]) -> None:
    """Leads whenever it can; now and then it stops in order, or crashes, and comes back."""
    life = 0
    while True:
        life += 1
        elector = Watched(
            network,  # the three verbs that an elector uses
            SkewedClock(rate),
            Metrics(),
            rng.random,
            name="sandpool",
            namespace="default",
            identity=f"p{number}-{life}",
        )
        elector.all = electors
        electors.append(elector)
        try:
            left = STORM - asyncio.get_running_loop().time()
            async with asyncio.timeout(min(left, rng.expovariate(1 / 60)) if left > 0 else None):
                await elector.acquire()
                await elector.hold()
        except LeadershipLost:
            pass
        except TimeoutError:
            if rng.random() < 0.5:
                await (
                    elector.release()
                )  # otherwise it crashed: until its deadline, its last writes may still be out there
        await asyncio.sleep(rng.random() * 3)


async def schedule(seed: int, rates: list[float], severity: float) -> None:
    rng = random.Random(seed)
    electors: list[Watched] = []
    async with a_cluster() as api:
        networks = [Network(api, rng, severity) for _ in rates]
        tasks = [
            asyncio.create_task(process(n, network, rng, rate, electors))
            for n, (network, rate) in enumerate(zip(networks, rates, strict=True))
        ]
        await asyncio.sleep(STORM)
        for network in networks:
            network.calm = True
        await asyncio.sleep(CALM)
        leaders = [elector.identity for elector in electors if elector.leading]
        late = [task for network in networks for task in network.under_way]
        for task in (*tasks, *late):
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(result, asyncio.CancelledError):
                raise result if isinstance(result, BaseException) else AssertionError("a process ended")
        await asyncio.gather(*late, return_exceptions=True)
        assert len(leaders) == 1, leaders


RATES = st.lists(st.sampled_from([0.9, 1.0, 1.1]), min_size=2, max_size=3)
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # a seed does not get simpler by getting smaller
SEVERITY = st.sampled_from([0.1, 0.5, 1.0, 2.0])


@settings(max_examples=50, deadline=None, phases=PHASES)
@given(seed=st.integers(0, 2**32), rates=RATES, severity=SEVERITY)
def test_never_two_leaders_and_in_the_end_one(seed: int, rates: list[float], severity: float) -> None:
    run_virtually(schedule(seed, rates, severity))


@pytest.mark.long
@settings(max_examples=1000, deadline=None, phases=PHASES)
@given(seed=st.integers(0, 2**32), rates=RATES, severity=SEVERITY)
def test_never_two_leaders_and_in_the_end_one_long(seed: int, rates: list[float], severity: float) -> None:
    run_virtually(schedule(seed, rates, severity))
