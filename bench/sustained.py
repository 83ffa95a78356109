"""The highest constant rate: a short ramp estimates it, and runs of a minute confirm it.

A ramp holds each step for some seconds only, on a pool that is full when the step begins, so it overestimates; or it underestimates, if
the machine was busy for a moment. The result is a rate that was held for a minute on a pool of a few seconds of that rate, refill included.
The first minute uses the rate of the ramp. A minute that was not held is repeated once, so that a stall of the machine does not count. After
two failures a lower rate is tried, in growing steps; after a success a higher one; between the two the gap is halved. It ends after at
most `tries` minutes and reports what limited the rate. Sandboxes are not watched, because a second watch of a pool would add load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.scenarios import Scale
from sandpool.load.ramp import BUSY
from sandpool.load.scenario import run_load_command, typed

LIMIT_MS = 100.0
SLOWER, FASTER = 0.7, 1.4
CLOSE = 1.1
"""Times the rate that was held: a rate that is not held and this near needs no try in between."""
PATIENCE = "10s"
"""Seconds until a claim has failed: short, so that a minute that is not held is not followed by a minute of waiting."""


def held(result: Mapping[str, Any], limit: float = LIMIT_MS) -> bool:
    p99 = result.get("p99_ms")
    return not result["failed"] and isinstance(p99, int | float) and p99 <= limit


def next_minute(tried: Sequence[Mapping[str, Any]], first: float) -> float | None:
    """The rate to try next; None when the limit is known well enough. Pure."""
    if not tried:
        return round(first, 1)
    last = tried[-1]
    if not last["held"] and [each["rate"] for each in tried].count(last["rate"]) == 1:
        return float(last["rate"])
    highest = max((each["rate"] for each in tried if each["held"]), default=None)
    never_held = _broken(tried)
    broken = min((each["rate"] for each in never_held), default=None)
    if highest is None:
        return (
            None if broken is None else round(float(broken) * SLOWER ** len({each["rate"] for each in never_held}), 1)
        )
    if broken is None:
        return round(float(highest) * FASTER, 1)
    if broken <= highest * CLOSE:
        return None
    return round(float(highest + broken) / 2, 1)


def _broken(tried: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Minutes at rates that were never held."""
    held_rates = {each["rate"] for each in tried if each["held"]}
    return [each for each in tried if each["rate"] not in held_rates]


def limited_by(tried: Sequence[Mapping[str, Any]], ramp: Mapping[str, Any]) -> str:
    """What limited the rate: from the slowest minute that was not held or, if all were held, from the ramp. Pure."""
    broken = _broken(tried)
    if not broken:
        return f"{ramp['limited_by']} in the ramp before it"
    worst = min(broken, key=lambda each: float(each["rate"]))
    cause = f"{worst['failed']:,} claims that failed" if worst["failed"] else f"a p99 of {worst['p99_ms']:,.0f} ms"
    return f"{cause} at {worst['rate']:,.0f}/s, where {_busy(worst)}"


def _busy(minute: Mapping[str, Any]) -> str:
    generator, server = minute["generator_cores"] or 0.0, minute["server_cores"]
    suspect = ": it may be the limit" if generator > BUSY else ""
    served = "" if server is None else f"the server used {server:.2f} cores and "
    return f"{served}the generator used {generator:.2f}{suspect}"


async def sustained(scale: Scale, *flags: str) -> dict[str, Any]:
    """The fastest minute that was held, with `held_rate`; if none was, the slowest that was tried and a `held_rate` of 0. `flags`: of
    all loads, such as those of a backend."""
    ramp = (*_ramp(scale), *flags)
    climbed = await run_load_command(*ramp)
    tried: list[dict[str, Any]] = []
    kept: dict[str, Any] = {}
    for _ in range(scale.tries):
        rate = next_minute(tried, float(climbed["highest_rate"] or scale.ramp_start))
        if rate is None:
            break
        found = await run_load_command(*minute(scale, rate), *flags)
        tried.append(_told(rate, found))
        highest = max((each["rate"] for each in tried if each["held"]), default=0.0)
        if rate == highest or not highest:
            kept = found
    return {
        **kept,
        "held_rate": max((each["rate"] for each in tried if each["held"]), default=0),
        "minutes": tried,
        "minute_limited_by": limited_by(tried, climbed),
        "ramp": {"command": typed(ramp), **{name: climbed[name] for name in ("highest_rate", "limited_by", "steps")}},
    }


def _ramp(scale: Scale) -> tuple[str, ...]:
    return (
        *("ramp", "--start", str(scale.ramp_start), "--factor", "1.6", "--hold", f"{scale.ramp_hold}s"),
        *("--refine", "1", "--p99", f"{LIMIT_MS:g}", "--most", str(scale.ramp_most)),
        *("--pool-size", str(scale.ramp_pool), "--timeout", PATIENCE, "--no-watch-sandboxes", "--fresh"),
    )


def minute(scale: Scale, rate: float) -> tuple[str, ...]:
    pool = max(scale.least_pool, round(scale.pool_seconds * rate))
    return (
        *("rate", "--rate", f"{rate:g}", "--for", f"{scale.minute}s", "--pool-size", str(pool)),
        *("--timeout", PATIENCE, "--no-watch-sandboxes", "--fresh"),
    )


def _told(rate: float, found: Mapping[str, Any]) -> dict[str, Any]:
    """Cores of the server are those of its whole process, the refill after the last claim included."""
    took, cpu = found["wall_s"], found["server_cpu_s"]
    return {
        "rate": rate,
        **{name: found[name] for name in ("p50_ms", "p99_ms", "failed", "warm_fraction")},
        "held": held(found),
        "server_cores": None if cpu is None or not took else round(cpu / took, 3),
        "generator_cores": found["generator_cpu_share"],
    }
