"""`sandpool load`: drives a cluster with claims and tells how it went; compares what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from sandpool.cli.durations import duration
from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.flags import OutputFlag
from sandpool.cli.load_flags import ClusterFlags, PoolFlags, ReportFlags, WorkFlags
from sandpool.cli.load_run import drive

load = App(name="load", help="Drive a cluster with claims, and tell how it went.")

ClaimsFlag = Annotated[int, Parameter(name="--claims", help="How many claims come at once.")]
RateFlag = Annotated[float, Parameter(name="--rate", help="Claims a second.")]
ForFlag = Annotated[str, Parameter(name="--for", help="How long claims come, such as 30s or 5m.")]
SeedFlag = Annotated[int, Parameter(name="--seed", help="The same seed gives the same moments.")]
_SECOND = 1.0
_LARGEST = 1000


@load.command
def burst(
    *,
    claims: ClaimsFlag = 300,
    cluster: ClusterFlags = ClusterFlags(),
    pool: PoolFlags = PoolFlags(),
    work: WorkFlags = WorkFlags(),
    report: ReportFlags = ReportFlags(),
) -> None:
    """All claims at once, on a pool that is full."""
    from sandpool.load import arrivals

    shape = {"shape": "burst", "claims": claims}
    drive(shape, lambda: arrivals.burst(claims), 2 * claims, None, cluster, pool, work, report)


@load.command
def bursts(
    *,
    claims: ClaimsFlag = 300,
    times: Annotated[int, Parameter(help="How many bursts.")] = 5,
    every: Annotated[
        str,
        Parameter(help="From the start of one to the start of the next; `full`: as soon as the pool is full again."),
    ] = "10s",
    cluster: ClusterFlags = ClusterFlags(),
    pool: PoolFlags = PoolFlags(),
    work: WorkFlags = WorkFlags(),
    report: ReportFlags = ReportFlags(),
) -> None:
    """Several bursts, one after the other."""
    from sandpool.load import arrivals

    shape = {"shape": "bursts", "claims": claims, "times": times}
    if every == "full":
        if not work.watch_sandboxes:
            raise Exit(USAGE, "--every full must see when the pool is full: leave out --no-watch-sandboxes")
        shape |= {"every": every}
        moments = lambda: arrivals.bursts(claims, times, _SECOND)[:claims]  # noqa: E731 - checked as a whole, one at a time
        drive(shape, moments, 2 * claims, None, cluster, pool, work, report, times=times)
        return
    gap = duration(every, "--every")
    shape |= {"every_s": gap}
    drive(shape, lambda: arrivals.bursts(claims, times, gap), 2 * claims, None, cluster, pool, work, report)


@load.command
def rate(
    *,
    rate: RateFlag = 50.0,
    for_: ForFlag = "30s",
    cluster: ClusterFlags = ClusterFlags(),
    pool: PoolFlags = PoolFlags(),
    work: WorkFlags = WorkFlags(),
    report: ReportFlags = ReportFlags(),
) -> None:
    """A constant rate, evenly spaced."""
    from sandpool.load import arrivals

    seconds = duration(for_, "--for")
    shape = {"shape": "rate", "rate": rate, "for_s": seconds}
    drive(shape, lambda: arrivals.constant(rate, seconds), _two_seconds(rate), _SECOND, cluster, pool, work, report)


@load.command
def poisson(
    *,
    rate: RateFlag = 50.0,
    for_: ForFlag = "30s",
    seed: SeedFlag = 1,
    cluster: ClusterFlags = ClusterFlags(),
    pool: PoolFlags = PoolFlags(),
    work: WorkFlags = WorkFlags(),
    report: ReportFlags = ReportFlags(),
) -> None:
    """Independent arrivals: a rate on average, with the clusters and gaps that chance brings."""
    from random import Random

    from sandpool.load import arrivals

    seconds, random = duration(for_, "--for"), Random(seed)  # noqa: S311 - to repeat a run, not to keep a secret
    shape = {"shape": "poisson", "rate": rate, "for_s": seconds, "seed": seed}
    drive(
        shape, lambda: arrivals.poisson(rate, seconds, random), _two_seconds(rate), _SECOND, cluster, pool, work, report
    )


@load.command
def ramp(
    *,
    start: Annotated[float, Parameter(help="The first rate, in claims a second.")] = 50.0,
    factor: Annotated[float, Parameter(help="By which the rate grows from step to step.")] = 1.5,
    p99: Annotated[float, Parameter(name="--p99", help="Milliseconds that the p99 may take.")] = 100.0,
    hold: Annotated[str, Parameter(help="How long each rate is held.")] = "10s",
    refine: Annotated[int, Parameter(help="Steps to narrow the edge down once a rate was not held.")] = 3,
    most: Annotated[float, Parameter(help="The highest rate to try.")] = 10_000.0,
    past: Annotated[
        tuple[float, ...],
        Parameter(
            negative="",
            help="Then offer so many times the highest rate that was held, and tell what was served. May be repeated.",
        ),
    ] = (),
    past_for: Annotated[str, Parameter(help="How long each of --past is offered.")] = "30s",
    cluster: ClusterFlags = ClusterFlags(),
    pool: PoolFlags = PoolFlags(),
    work: WorkFlags = WorkFlags(),
    report: ReportFlags = ReportFlags(),
) -> None:
    """Raise the rate until the p99 is too long or claims fail, and tell the highest rate that was held, and what is served past it."""
    from sandpool.load.ramp import Ramp

    seconds = duration(hold, "--hold")
    if not (start > 0 and factor > 1 and p99 > 0 and 0 <= refine <= 20 and most >= start):
        raise Exit(
            USAGE, "--start, --p99 must be above 0, --factor above 1, --refine from 0 to 20, --most at least --start"
        )
    beyond = duration(past_for, "--past-for")
    if not all(1 <= times <= 100 for times in past):
        raise Exit(USAGE, "--past: choose from 1 to 100 times the highest rate that was held, such as 2")
    climb = Ramp(start, p99 / 1000, seconds, factor, refine, most, past, beyond)
    shape = {"shape": "ramp", "start": start, "factor": factor, "p99_limit_ms": p99, "hold_s": seconds}
    drive(shape, list, _LARGEST, _SECOND, cluster, pool, work, report, climb)


@load.command
def replay(
    file: Annotated[Path, Parameter(help='Lines of JSON: what --raw kept, or {"offset": 1.5, "pool": "python"}.')],
    /,
    *,
    speed: Annotated[float, Parameter(help="2 is twice as fast as it was recorded.")] = 1.0,
    keep_pools: Annotated[
        bool, Parameter(negative="", help="Claim from the pools that the trace names, in the namespace of --pool.")
    ] = False,
    cluster: ClusterFlags = ClusterFlags(),
    pool: PoolFlags = PoolFlags(),
    work: WorkFlags = WorkFlags(),
    report: ReportFlags = ReportFlags(),
) -> None:
    """Claims at the moments of a recorded trace."""
    from dataclasses import replace

    from sandpool.load import arrivals
    from sandpool.load.record import read_trace

    if keep_pools and not pool.pool:
        raise Exit(
            USAGE, "--keep-pools claims from pools that exist; name the one for lines without a pool with --pool"
        )
    trace = read_trace(file)
    moments = trace if keep_pools else [replace(each, pool="") for each in trace]
    shape = {"shape": "replay", "trace": file.name, "speed": speed}
    size = min(1000, max(1, len(trace)))
    drive(shape, lambda: arrivals.replayed(moments, speed=speed), size, _SECOND, cluster, pool, work, report)


@load.command
def compare(
    a: Annotated[Path, Parameter(help="A result (-o json or --raw), or a folder with those of several runs.")],
    b: Annotated[Path, Parameter(help="The other side.")],
    /,
    *,
    seed: SeedFlag = 1,
    output: OutputFlag = "table",
) -> None:
    """Ratios of B over A with confidence intervals, and whether they allow a conclusion."""
    from sandpool.load.compare import compare, comparison_table, read_side

    found = compare(read_side(a), read_side(b), seed)
    print(msgspec.json.encode(found).decode() if output == "json" else comparison_table(found))


def _two_seconds(rate: float) -> int:
    """Members that are taken while others start. A larger pool would only show what was in store, and is refilled in longer waves."""
    return max(100, int(min(2 * rate, _LARGEST)))
