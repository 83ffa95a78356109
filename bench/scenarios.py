"""The standard set as data: which loads, of what size, how often. `FULL` is published; `QUICK` only checks that everything works."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sandpool.load.scenario import Scenario

LARGE = 10_000
"""A pool of this size takes a minute to fill."""


@dataclass(frozen=True, slots=True)
class Scale:
    burst: int = 300
    bursts: int = 5
    every: str = "full"  # the next burst, when the pool is full again
    crowd: int = 1000
    pools: tuple[int, ...] = (100, 1000, 10_000)
    pool_rate: int = 50  # claims a second on each of those
    seconds: int = 10  # of such a rate
    cold_rate: int = 2
    first_output: int = 100
    refill: int = 300
    rollout_pool: int = 300
    rollout_rate: int = 100
    ramp_start: int = 50
    ramp_hold: int = 5
    ramp_most: int = 4000
    ramp_pool: int = 1000
    minute: int = 60
    pool_seconds: int = 3  # of the rate, in the pool of such a minute
    least_pool: int = 200
    tries: int = 8  # such minutes, at most: each that is not held is repeated once
    past: tuple[float, ...] = (2.0, 5.0)  # times what was held, past capacity
    past_seconds: int = 30
    repeats: int = 5
    few: int = 3  # repeats of what takes half a minute or more
    fewest: int = 2  # and of what takes several


FULL = Scale()
QUICK = Scale(
    burst=10,
    bursts=2,
    crowd=20,
    pools=(10, 20),
    pool_rate=10,
    seconds=1,
    first_output=3,
    refill=10,
    rollout_pool=5,
    rollout_rate=10,
    ramp_start=10,
    ramp_hold=1,
    ramp_most=20,
    ramp_pool=50,
    minute=1,
    past_seconds=1,
    least_pool=20,
    repeats=1,
    few=1,
    fewest=1,
)


def real(scale: Scale) -> Scale:
    """The same with real sandboxes, of which a machine starts far fewer a second."""
    start, most = min(10, scale.ramp_start), min(200, scale.ramp_most)
    return replace(scale, ramp_start=start, ramp_most=most, ramp_pool=scale.least_pool, least_pool=60, past=(2.0,))


def plain(scale: Scale) -> tuple[Scenario, ...]:
    """Those that are one `sandpool load` command."""
    often, seldom = scale.repeats, min(scale.few, scale.repeats)
    burst = ("burst", "--claims", str(scale.burst), "--pool-size", str(2 * scale.burst), "--fresh")
    several = ("bursts", "--claims", str(scale.burst), "--times", str(scale.bursts), "--every", scale.every, "--fresh")
    crowd = ("burst", "--claims", str(scale.crowd), "--pool-size", str(2 * scale.crowd), "--fresh")
    first = ("burst", "--claims", str(scale.first_output), "--pool-size", str(2 * scale.first_output), "--fresh")
    cold = ("rate", "--rate", str(scale.cold_rate), "--for", f"{scale.seconds}s", "--pool-size", "0", "--fresh")
    real = ("--backend", "namespaces")
    return (
        Scenario("local-burst", f"{scale.burst} claims at once on a pool of {2 * scale.burst}", burst, repeats=often),
        Scenario(
            "local-burst-real",
            f"{scale.burst} claims at once on {2 * scale.burst} real sandboxes",
            (*burst, *real),
            repeats=seldom,
        ),
        Scenario(
            "local-bursts",
            f"{scale.bursts} bursts of {scale.burst}, each on a full pool of {2 * scale.burst}",
            (*several, "--pool-size", str(2 * scale.burst)),
            repeats=often,
        ),
        Scenario(
            "local-crowd", f"{scale.crowd:,} claims at once on a pool of {2 * scale.crowd:,}", crowd, repeats=often
        ),
        Scenario("local-cold", "cold starts, no warm member", cold, repeats=often),
        Scenario("local-cold-real", "cold starts of real sandboxes, no warm member", (*cold, *real), repeats=often),
        Scenario(
            "local-first-output",
            f"{scale.first_output} claims at once on real sandboxes, until the first output of a command in each",
            (*first, *real, "--exec", "echo ready"),
            repeats=often,
        ),
        *(_pool(scale, size) for size in scale.pools),
    )


def _pool(scale: Scale, size: int) -> Scenario:
    load = ("rate", "--rate", str(scale.pool_rate), "--for", f"{scale.seconds}s", "--pool-size", str(size))
    return Scenario(
        f"local-pool-{size}",
        f"{scale.pool_rate} claims a second on a pool of {size:,}",
        (*load, "--fill-timeout", "15m", "--fresh"),
        repeats=min(scale.few, scale.repeats) if size >= LARGE else scale.repeats,
    )
