"""The highest constant rate: a ramp finds where the edge is, a minute at that rate shows whether it is held.

A ramp holds each step for some seconds only. So the minute is what counts: if its p99 is too long or a claim fails, the next minute is
a tenth slower, until one holds.
"""

from __future__ import annotations

from typing import Any

from bench.commands import load, written
from bench.scenarios import Scale

LIMIT_MS = 100.0
SLOWER = 0.9
TRIES = 6


def held(result: dict[str, Any], limit: float = LIMIT_MS) -> bool:
    p99 = result.get("p99_ms")
    return not result["failed"] and isinstance(p99, int | float) and p99 <= limit


async def sustained(scale: Scale) -> dict[str, Any]:
    """The minute that was held, with `held_rate`; without any, the last one that was tried and `held_rate` of 0."""
    pool = ("--pool-size", str(scale.ramp_pool))
    ramp = (
        *("ramp", "--start", str(scale.ramp_start), "--hold", f"{scale.ramp_hold}s", "--p99", str(LIMIT_MS)),
        *("--most", str(scale.ramp_most), *pool, "--fresh"),
    )
    climbed = await load(*ramp)
    rate = float(climbed["highest_rate"] or scale.ramp_start)
    tried = []
    for _ in range(TRIES):
        minute = ("rate", "--rate", f"{rate:g}", "--for", f"{scale.minute}s", *pool, "--fresh")
        found = await load(*minute)
        tried.append({"rate": rate, "p99_ms": found["p99_ms"], "failed": found["failed"], "held": held(found)})
        if held(found):
            break
        rate = round(rate * SLOWER, 1)
    steps = {name: climbed[name] for name in ("highest_rate", "limited_by", "steps")}
    return {
        **found,
        "held_rate": tried[-1]["rate"] if tried[-1]["held"] else 0,
        "minutes": tried,
        "ramp": {"command": written(ramp), **steps},
    }
