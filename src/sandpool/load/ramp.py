"""A ramp: the rate is raised until a step does not hold, then the edge is narrowed down. Decisions are pure.

A step holds if every claim became Ready and the p99, counted from when claims should have been sent, is within the limit.
A step in which the generator itself was late says nothing about the cluster: the ramp ends there and says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandpool.load.arrivals import Arrival, constant
from sandpool.load.distribution import percentile
from sandpool.load.record import ClaimRecord, PoolLevel, later
from sandpool.load.session import Measured

BUSY = 0.9
"""Share of one core from which the generator is suspected to be the limit."""


@dataclass(frozen=True, slots=True)
class Ramp:
    start: float  # claims a second
    p99: float  # seconds
    hold: float = 10.0  # seconds of each step
    factor: float = 1.5
    refine: int = 3  # steps to narrow the edge down
    most: float = 100_000.0


@dataclass(frozen=True, slots=True)
class Step:
    rate: float
    p99: float | None
    errors: int
    generator_share: float
    measured: Measured = field(repr=False)
    held: bool = False
    p50: float | None = None

    def told(self) -> dict[str, Any]:
        share = round(self.generator_share, 3)
        times = {"p50_ms": _ms(self.p50), "p99_ms": _ms(self.p99)}
        return {"rate": self.rate, **times, "errors": self.errors, "held": self.held, "generator_share": share}


@dataclass(slots=True)
class Climb:
    steps: list[Step] = field(default_factory=list)

    @property
    def highest(self) -> float | None:
        return max((step.rate for step in self.steps if step.held), default=None)

    @property
    def best(self) -> Measured | None:
        held = [step for step in self.steps if step.held]
        return max(held, key=lambda step: step.rate).measured if held else None

    @property
    def limited_by(self) -> str:
        broken = [step for step in self.steps if not step.held]
        if not broken:
            return "nothing: the highest rate of the ramp was held"
        lowest = min(broken, key=lambda step: step.rate)
        if lowest.generator_share > BUSY:
            return "the generator: it used a whole core, so the cluster may hold more"
        return "errors" if lowest.errors else "p99"


def lines(steps: Sequence[Step]) -> Iterator[ClaimRecord | PoolLevel]:
    """Every claim of every step, one step after the other as they were: a replay of them is the whole ramp."""
    for step in steps:
        behind = step.measured.began - steps[0].measured.began
        yield from (later(record, behind, step.rate) for record in step.measured.records)
        yield from (PoolLevel(at=at + behind, ready=ready, step=step.rate) for at, ready in step.measured.pool_levels)


def next_rate(steps: Sequence[Step], ramp: Ramp) -> float | None:
    """The rate to try next; None when the edge is known well enough."""
    if not steps:
        return ramp.start
    held = max((step.rate for step in steps if step.held), default=None)
    broken = min((step.rate for step in steps if not step.held), default=None)
    if broken is None:
        higher = round(steps[-1].rate * ramp.factor, 1)
        return higher if higher <= ramp.most else None
    refined = sum(1 for step in steps if step.rate < max(each.rate for each in steps)) - _rising(steps)
    if refined >= ramp.refine:
        return None
    return round((held + broken) / 2, 1) if held is not None else round(broken / 2, 1)


def _rising(steps: Sequence[Step]) -> int:
    """Steps of the way up, before the first that did not hold."""
    return next((number for number, step in enumerate(steps) if not step.held), len(steps))


def judge(rate: float, measured: Measured, ramp: Ramp) -> Step:
    ordered = sorted(latency for record in measured.records if (latency := record.latency) is not None)
    p99 = percentile(ordered, 99)
    errors = sum(1 for record in measured.records if record.error or record.turned_away)
    held = not errors and p99 is not None and p99 <= ramp.p99
    share = measured.used.generator_cpu / max(measured.used.driven, 1e-9)
    return Step(rate, p99, errors, share, measured, held, percentile(ordered, 50))


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


async def climb(
    measure: Callable[[Sequence[Arrival]], Awaitable[Measured]], ramp: Ramp, said: Callable[[str], None]
) -> Climb:
    found = Climb()
    while (rate := next_rate(found.steps, ramp)) is not None:
        said(f"{rate:g} claims a second for {ramp.hold:g} s")
        step = judge(rate, await measure(constant(rate, ramp.hold)), ramp)
        found.steps.append(step)
    return found
