"""Past capacity: what is served when several times as much is offered as can be held, and to whom.

Capacity is the highest rate that a minute was held at (sustained.py). Then claims come at some times that rate. The result is how many are served per
second in the last two thirds of that time, when the stock of the full pool is used up. Claims have a timeout of minutes, because a long
wait is not a failure; throttled ones (429) retry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.scenarios import Scale
from bench.sustained import sustained
from sandpool.load.scenario import run_load_command, typed

PATIENCE = "5m"
KEPT = (
    *("claims", "ready", "failed", "failed_admitted", "throttled", "turned_away", "goodput_per_s", "sustained_per_s"),
    *("warm_fraction", "inversions", "inversion_max_ms", "p50_ms", "p99_ms", "max_ms", "refilled_s"),
)


async def overload(scale: Scale, *flags: str) -> dict[str, Any]:
    """`flags`: of all loads, such as those of a backend."""
    found = await sustained(scale, *flags)
    capacity = float(found["held_rate"])
    past = []
    for times in scale.past if capacity else ():
        arguments = offered(scale, times, capacity, *flags)
        past.append(past_row(times, capacity, await run_load_command(*arguments), typed(arguments)))
    return {"held_rate": capacity, "minutes": found["minutes"], "ramp": found["ramp"], "past": past, **summed(past)}


def offered(scale: Scale, times: float, capacity: float, *flags: str) -> tuple[str, ...]:
    """The pool has the size of the minutes at capacity: a larger stock is not capacity."""
    pool = max(scale.least_pool, round(scale.pool_seconds * capacity))
    return (
        *("rate", "--rate", f"{times * capacity:g}", "--for", f"{scale.past_seconds}s", "--pool-size", str(pool)),
        *("--timeout", PATIENCE, "--no-watch-sandboxes", "--fresh", *flags),
    )


def past_row(times: float, capacity: float, found: Mapping[str, Any], command: str) -> dict[str, Any]:
    served = found["sustained_per_s"]
    share = None if served is None or not capacity else round(served / capacity, 3)
    rate = found["load"]["rate"]
    return {"times": times, "rate": rate, "of_capacity": share, "command": command, **{key: found[key] for key in KEPT}}


def summed(past: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The numbers of the targets: each goodput, and the worst of everything else. Pure."""
    warm = [each["warm_fraction"] for each in past if each["warm_fraction"] is not None]
    return {
        **{f"of_capacity_{each['times']:g}x": each["of_capacity"] for each in past},
        "warm_past": min(warm, default=None),
        "failed": sum(each["failed_admitted"] for each in past),
    }
