"""One seed: a world, its users, its faults and its controllers; first all at once, then calm, then the final account."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sandpool.simulation.faults import Faults
from sandpool.simulation.kubelet import Kubelet
from sandpool.simulation.meddler import Meddler
from sandpool.simulation.operator import Operator
from sandpool.simulation.places import choose_places
from sandpool.simulation.referee import Referee, Unforeseen
from sandpool.simulation.seeded_loop import Stuck, run_seeded
from sandpool.simulation.streams import Streams
from sandpool.simulation.users import Effort, Users, choose_effort
from sandpool.simulation.world import World

CALM = 400.0
"""Virtual seconds without faults before the final account: more than any delay that a storm can have left behind."""
LAGS = (0.0, 0.0, 0.5, 5.0)
"""Virtual seconds that the collector is behind, one of them in each run."""


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    violations: tuple[str, ...] = ()
    trace: str = ""
    story: str = ""


def run_seed(seed: int, effort: Effort | None = None, *, trace: bool = False) -> Result:
    """The same seed gives the same result, byte for byte."""
    run = Run(seed)
    with _heard_by(Unforeseen(run.referee)):
        try:
            run_seeded(run.whole(effort or choose_effort(run.streams.of("effort"))), run.streams.of("order"))
        except Stuck as stuck:
            run.referee.violated(f"rest: {stuck}")
    run.world.check()
    referee = run.referee
    violated = bool(referee.violations)
    return Result(
        seed,
        run.world.steps,
        run.faults.counts,
        tuple(referee.violations),
        referee.trace() if trace else "",
        referee.story() if violated else "",
    )


class Run:
    def __init__(self, seed: int) -> None:
        self.streams = Streams(seed)
        self.faults = Faults(self.streams)
        self.world = World(self.streams.of("world"))
        self.referee = Referee(self.world)
        self.faults.tell = self.referee.remark

    async def whole(self, effort: Effort) -> None:
        world, faults, streams = self.world, self.faults, self.streams
        chance = streams.of("shape")
        places = choose_places(chance)
        remember, pace = chance.choice((40, 400, 20_000)), chance.choice((0.002, 0.01, 0.1))
        lag = streams.of("collector").choice(LAGS)
        await world.open(tuple(place.namespace for place in places.all), places.nodes, remember, lag)
        capacity = streams.of("capacity")
        kubelet = Kubelet(world, faults, streams.of("kubelet"), places.nodes, capacity.choice((1, 2, 1_000, 1_000)))
        users = Users(world, places, kubelet, faults, streams.of("users"))
        Meddler(world, faults, streams.of("meddler"))
        operator = Operator(world, faults, streams, pace, self.referee)
        operator.overlap = lambda: world.spawn(users.crowd())
        try:
            await users.settle_in()
            running = world.spawn(operator.run())
            await asyncio.sleep(streams.of("begin").random() * 4)
            if capacity.random() < 0.4:
                world.spawn(users.flood(capacity, effort.seconds / 2))
            await users.work(effort)
            faults.on = False
            await kubelet.recover()
            self.referee.calm()
            await asyncio.sleep(CALM)
            world.check()
            self.referee.close(operator.repairs)
            running.cancel()
            operator.current.kill()
            await operator.current.ended.wait()
        finally:
            await world.close()


@contextmanager
def _heard_by(handler: logging.Handler) -> Iterator[None]:
    """The controllers meet so many errors here, on purpose, that nobody else should read their log."""
    root = logging.getLogger("sandpool")
    level, propagate, handlers = root.level, root.propagate, root.handlers[:]
    root.handlers[:], root.propagate = [handler], False
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.handlers[:], root.propagate = handlers, propagate
        root.setLevel(level)
