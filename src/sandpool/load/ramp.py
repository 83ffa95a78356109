"""Raises the rate until a step is not held, then narrows down the limit. Decisions are pure.

A step holds if every claim became Ready and the p99, counted from when claims should have been sent, is within the limit.
A step that does not hold is repeated once: on a shared machine a single stall of half a second would end the ramp. A step in which the
generator itself was late says nothing about the cluster: the ramp ends there and reports it. Optionally, claims then arrive at a multiple
of the highest rate that was held, to measure whether the cluster keeps its capacity past it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandpool.load.arrivals import Arrival, constant
from sandpool.load.distribution import percentile
from sandpool.load.record import ClaimRecord, PoolLevel, later
from sandpool.load.session import Measured
from sandpool.load.summary import goodput, summarise

BUSY = 0.9
"""Share of one core from which the generator is suspected to be the limit."""


@dataclass(frozen=True, slots=True)
class Ramp:
    start: float  # claims a second
    p99: float  # seconds
    hold: float = 10.0  # seconds of each step
    factor: float = 1.5
    refine: int = 3  # steps to narrow down the limit
    most: float = 100_000.0
    past: tuple[float, ...] = ()  # times the rate that was held, one after the other
    past_hold: float = 30.0  # seconds of each of these


@dataclass(frozen=True, slots=True)
class Step:
    rate: float
    p99: float | None
    errors: int
    generator_share: float
    measured: Measured = field(repr=False)
    held: bool = False
    p50: float | None = None
    turned_away: int = 0
    not_sent: int = 0  # of these

    def as_dict(self) -> dict[str, Any]:
        share = round(self.generator_share, 3)
        times = {"p50_ms": _ms(self.p50), "p99_ms": _ms(self.p99)}
        counts = {"errors": self.errors, "turned_away": self.turned_away, "not_sent": self.not_sent}
        served = _rounded(goodput(self.measured.records))
        return {
            "rate": self.rate, **times, **counts, "goodput_per_s": served, "held": self.held, "generator_share": share
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Past:
    """Claims that arrived faster than they can be served."""

    times: float
    step: Step
    capacity: float

    def as_dict(self) -> dict[str, Any]:
        records = self.measured.records
        found = summarise(records, self.measured.counts, self.measured.used)
        names = ("claims", "ready", "failed_admitted", "throttled", "turned_away", "not_sent", "goodput_per_s")
        more = ("sustained_per_s", "warm_fraction", "inversions", "inversion_max_ms", "p50_ms", "p99_ms")
        share = None if found["sustained_per_s"] is None else round(found["sustained_per_s"] / self.capacity, 3)
        return {
            "times": self.times,
            "rate": self.step.rate,
            "of_capacity": share,
            **{name: found[name] for name in names + more},
        }

    @property
    def measured(self) -> Measured:
        return self.step.measured


@dataclass(slots=True)
class Climb:
    steps: list[Step] = field(default_factory=list)
    past: list[Past] = field(default_factory=list)

    @property
    def highest(self) -> float | None:
        return max((step.rate for step in self.steps if step.held), default=None)

    @property
    def best(self) -> Measured | None:
        held = [step for step in self.steps if step.held]
        return max(held, key=lambda step: step.rate).measured if held else None

    @property
    def limited_by(self) -> str:
        broken = _broken(self.steps)
        if not broken:
            return "nothing: the highest rate of the ramp was held"
        lowest = min(broken, key=lambda step: step.rate)
        if lowest.generator_share > BUSY:
            return "the generator: it used a whole core, so the cluster may hold more"
        if lowest.errors:
            return "errors"
        if lowest.turned_away > lowest.not_sent:
            return "429: claims were turned away"
        return "slow answers: all connections waited, and claims were not sent" if lowest.not_sent else "p99"


def lines(steps: Sequence[Step]) -> Iterator[ClaimRecord | PoolLevel]:
    """Every claim of every step, one step after the other as they were: a replay of them is the whole ramp."""
    for step in steps:
        behind = step.measured.began - steps[0].measured.began
        yield from (later(record, behind, step.rate) for record in step.measured.records)
        yield from (PoolLevel(at=at + behind, ready=ready, step=step.rate) for at, ready in step.measured.pool_levels)


def next_rate(steps: Sequence[Step], ramp: Ramp) -> float | None:
    """The rate to try next; None when the limit is known well enough."""
    if not steps:
        return ramp.start
    last = steps[-1]
    if not last.held and [step.rate for step in steps].count(last.rate) == 1:
        return last.rate
    held = max((step.rate for step in steps if step.held), default=None)
    broken = min((step.rate for step in _broken(steps)), default=None)
    if broken is None:
        higher = round(last.rate * ramp.factor, 1)
        return higher if higher <= ramp.most else None
    highest = max(step.rate for step in steps)
    refined = len({step.rate for step in steps if step.rate < highest}) - _rising(steps)
    if refined >= ramp.refine:
        return None
    return round((held + broken) / 2, 1) if held is not None else round(broken / 2, 1)


def _broken(steps: Sequence[Step]) -> list[Step]:
    """Steps at rates that were never held."""
    held = {step.rate for step in steps if step.held}
    return [step for step in steps if step.rate not in held]


def _rising(steps: Sequence[Step]) -> int:
    """Rates of the way up, before the first that did not hold."""
    broken = {step.rate for step in _broken(steps)}
    rates = list(dict.fromkeys(step.rate for step in steps))
    return next((number for number, rate in enumerate(rates) if rate in broken), len(rates))


def judge(rate: float, measured: Measured, ramp: Ramp) -> Step:
    ordered = sorted(latency for record in measured.records if (latency := record.latency) is not None)
    p99 = percentile(ordered, 99)
    errors = sum(1 for record in measured.records if record.error)
    away = sum(record.turned_away for record in measured.records)
    unsent = sum(record.not_sent for record in measured.records)
    held = not errors and not away and p99 is not None and p99 <= ramp.p99
    share = measured.used.generator_cpu / max(measured.used.driven, 1e-9)
    return Step(rate, p99, errors, share, measured, held, percentile(ordered, 50), away, unsent)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


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
    for times in ramp.past if found.highest else ():
        rate = round(times * (found.highest or 0.0), 1)
        said(f"{rate:g} claims a second for {ramp.past_hold:g} s, {times:g} times what was held")
        step = judge(rate, await measure(constant(rate, ramp.past_hold)), ramp)
        found.past.append(Past(times, step, found.highest or 0.0))
    return found
