"""Arrival times of claims: pure functions from a shape (and a seed) to offsets in order. No clock.

An offset is seconds after the start. The driver submits each claim at its time whatever the cluster does, so the shape
describes the load completely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

MOST = 2_000_000
"""Claims of one run at most: all of its records must fit into memory."""


class BadShape(ValueError):
    """An invalid shape; the message names the number and its valid range."""


@dataclass(frozen=True, slots=True)
class Arrival:
    offset: float  # seconds after the start
    pool: str = ""  # empty: the pool of the run


def burst(claims: int, at: float = 0.0) -> list[Arrival]:
    """All at once."""
    _positive("claims", claims)
    return [Arrival(at)] * claims


def bursts(claims: int, times: int, every: float) -> list[Arrival]:
    """`times` bursts of `claims` each, one every `every` seconds."""
    _positive("bursts", times)
    _positive("seconds between bursts", every)
    return [arrival for number in range(times) for arrival in burst(claims, number * every)]


def constant(rate: float, seconds: float) -> list[Arrival]:
    """`rate` a second, evenly spaced, the first at 0."""
    return [Arrival(number / rate) for number in range(_count(rate, seconds))]


def poisson(rate: float, seconds: float, random: Random) -> list[Arrival]:
    """`rate` a second on average, independent of each other: the gaps are exponential."""
    _count(rate, seconds)
    return [Arrival(offset) for offset in _until(seconds, rate, random)]


def replayed(trace: Iterable[Arrival], *, speed: float = 1.0) -> list[Arrival]:
    """A recorded trace, from its first arrival on; `speed` of 2 is twice as fast."""
    _positive("speed", speed)
    ordered = sorted(trace, key=lambda arrival: arrival.offset)
    if not ordered:
        raise BadShape("the trace has no arrivals")
    first = ordered[0].offset
    return [Arrival((each.offset - first) / speed, each.pool) for each in ordered]


def _until(seconds: float, rate: float, random: Random) -> Iterator[float]:
    offset = random.expovariate(rate)
    while offset < seconds:
        yield offset
        offset += random.expovariate(rate)


def _count(rate: float, seconds: float) -> int:
    _positive("rate", rate)
    _positive("seconds", seconds)
    count = max(1, round(rate * seconds))
    if count > MOST:
        raise BadShape(f"{rate:g} a second for {seconds:g} s are {count} claims; at most {MOST} fit into one run")
    return count


def _positive(what: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise BadShape(f"{what} is {value:g}; it must be more than 0")
    if what == "claims" and value > MOST:
        raise BadShape(f"claims is {value:g}; at most {MOST} fit into one run")
