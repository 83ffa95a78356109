"""Runs one seed, or many in one process or several, and sums up the results.

A run is users, faults and controllers at once, then a calm period, then the final check.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sandpool.simulation.faults import Fault, Faults
from sandpool.simulation.kubelet import Kubelet
from sandpool.simulation.mutations import mutated
from sandpool.simulation.operator import Operator
from sandpool.simulation.referee import Referee, Unforeseen
from sandpool.simulation.scenario import choose_setup
from sandpool.simulation.seeded_loop import RandomStreams, Stuck, run_seeded
from sandpool.simulation.users import Effort, TemplateEditor, Users, choose_effort
from sandpool.simulation.world import World

CALM = 400.0
"""Virtual seconds without faults before the final check: more than any delay that faults can have caused."""
LAGS = (0.0, 0.0, 0.5, 5.0)
"""Virtual seconds that the garbage collector lags behind, one of them in each run."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one seed led to."""

    seed: int
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    violations: tuple[str, ...] = ()
    trace: str = ""
    report: str = ""


def run_seed(seed: int, effort: Effort | None = None, *, trace: bool = False) -> Result:
    """The same seed gives the same result, byte for byte."""
    run = Run(seed)
    with _log_to(Unforeseen(run.referee)):
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
        referee.report() if violated else "",
    )


class Run:
    """The parts of one run."""

    def __init__(self, seed: int) -> None:
        self.streams = RandomStreams(seed)
        self.faults = Faults(self.streams)
        self.world = World(self.streams.of("world"))
        self.referee = Referee(self.world)
        self.faults.on_fault = self.referee.remark

    async def whole(self, effort: Effort) -> None:
        world, faults, streams = self.world, self.faults, self.streams
        chance = streams.of("shape")
        setup = choose_setup(chance)
        remember, pace = chance.choice((40, 400, 20_000)), chance.choice((0.002, 0.01, 0.1))
        lag = streams.of("collector").choice(LAGS)
        await world.open(tuple(tenant.namespace for tenant in setup.tenants), setup.nodes, remember, lag)
        capacity = streams.of("capacity")
        kubelet = Kubelet(world, faults, streams.of("kubelet"), setup.nodes, capacity.choice((1, 2, 1_000, 1_000)))
        users = Users(world, setup, kubelet, faults, streams.of("users"))
        TemplateEditor(world, faults, streams.of("meddler"))
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
def _log_to(handler: logging.Handler) -> Iterator[None]:
    """Sends the log of the controllers to this handler only: it is full of injected errors."""
    root = logging.getLogger("sandpool")
    level, propagate, handlers = root.level, root.propagate, root.handlers[:]
    root.handlers[:], root.propagate = [handler], False
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.handlers[:], root.propagate = handlers, propagate
        root.setLevel(level)


ENOUGH = 200
"""In this many seeds each kind of fault must have struck at least once."""
REPORTED = 3
_CHUNK = 4


@dataclass(slots=True)
class Summary:
    """The results of many seeds."""

    seeds: int = 0
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: int = 0
    failing: dict[int, tuple[str, ...]] = field(default_factory=dict)
    reports: dict[int, str] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.steps += result.steps
        self.faults.update(result.counts)
        self.violations += len(result.violations)
        if result.violations:
            self.failing[result.seed] = result.violations
            if len(self.reports) < REPORTED:
                self.reports[result.seed] = result.report

    @property
    def never(self) -> list[str]:
        """Faults that never struck although they should have."""
        return [fault.value for fault in Fault if not self.faults[fault.value]] if self.seeds >= ENOUGH else []

    @property
    def passed(self) -> bool:
        return not self.failing and not self.never

    def as_json(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "steps": self.steps,
            "faults": dict(sorted(self.faults.items())),
            "never": self.never,
            "violations": self.violations,
            "failing": [{"seed": seed, "violations": list(found)} for seed, found in sorted(self.failing.items())],
        }


def run_many(
    seeds: Iterable[int], *, jobs: int = 1, mutation: str = "", progress: Callable[[Summary], object] = lambda _: None
) -> Summary:
    """`progress` is called with the summary after each seed."""
    summary = Summary()
    for result in _results(seeds, jobs, mutation):
        summary.add(result)
        progress(summary)
    return summary


def _results(seeds: Iterable[int], jobs: int, mutation: str) -> Iterator[Result]:
    work = partial(run_mutated, mutation)
    if jobs <= 1:
        yield from map(work, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, seeds, chunksize=_CHUNK)


def run_mutated(mutation: str, seed: int, *, trace: bool = False) -> Result:
    with mutated(mutation):
        return run_seed(seed, trace=trace)


def caught_by(mutation: str, seeds: Iterable[int]) -> Result | None:
    """The first run that notices the mutation."""
    for seed in seeds:
        result = run_mutated(mutation, seed)
        if result.violations:
            return result
    return None
