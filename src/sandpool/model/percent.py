"""Numbers that may be a part of the whole: how maxUnavailable and maxSurge become counts, with the rounding of Deployments."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PERCENT = re.compile(r"([0-9]+)%", re.ASCII)


class PercentError(ValueError):
    """Neither a number nor a percentage; the message names the value."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a rollout may go: members missing below, members too many above."""

    unavailable: int
    surge: int


def count_of(value: int | str, total: int, *, up: bool) -> int:
    """A count as it is, or a percentage of the total, rounded up or down."""
    if isinstance(value, int):
        return value
    found = _PERCENT.fullmatch(value)
    if found is None:
        raise PercentError(f'"{value}" is neither a number nor a percentage such as "25%"')
    parts = int(found[1]) * total
    return -(-parts // 100) if up else parts // 100


def rolling_bounds(max_unavailable: int | str, max_surge: int | str, replicas: int) -> Bounds:
    """Surge rounds up, unavailable down. With both zero no rollout could ever move, so one member may be missing."""
    surge = count_of(max_surge, replicas, up=True)
    unavailable = count_of(max_unavailable, replicas, up=False)
    if not surge and not unavailable:
        unavailable = 1
    return Bounds(min(unavailable, replicas), surge)
