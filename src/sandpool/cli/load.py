"""`sandpool load`: loads a cluster with claims and reports the results; compares results. Ctrl-C and SIGTERM clean up first."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from sandpool.cli.exits import FAILED, USAGE, Exit
from sandpool.cli.flags import OutputFlag
from sandpool.cli.load_flags import ClusterFlags, PoolFlags, ReportFlags, WorkFlags
from sandpool.cli.units import duration

if TYPE_CHECKING:
    from sandpool.load.arrivals import Arrival
    from sandpool.load.ramp import Ramp
    from sandpool.load.run import Outcome, Plan, Where


def drive(
    shape: dict[str, Any],
    moments: Callable[[], list[Arrival]],
    natural: int,
    dwell: float | None,
    cluster: ClusterFlags,
    pool: PoolFlags,
    work: WorkFlags,
    report: ReportFlags,
    climb: Ramp | None = None,
    times: int = 1,
) -> None:
    from sandpool.load.arrivals import BadShape

    report.check()
    work.check()
    where = cluster.where()
    try:
        arrivals = moments()
    except BadShape as error:
        raise Exit(USAGE, str(error)) from error
    plan = replace(_plan(shape, arrivals, natural, dwell, cluster, pool, work, report, climb), times=times)
    outcome = measure(where, plan, report.quiet)
    _tell(outcome, report)
    if outcome.result["left_behind"]:
        raise Exit(FAILED, f"not removed: {'; '.join(outcome.result['left_behind'])}")
    if outcome.result["failed"] and climb is None:
        raise Exit(FAILED, f"{outcome.result['failed']} of {outcome.result['claims']} claims failed")


def _plan(
    shape: dict[str, Any],
    arrivals: list[Arrival],
    natural: int,
    dwell: float | None,
    cluster: ClusterFlags,
    pool: PoolFlags,
    work: WorkFlags,
    report: ReportFlags,
    climb: Ramp | None,
) -> Plan:
    from sandpool.load.audit import AuditLog
    from sandpool.load.run import Plan
    from sandpool.load.session import Settings
    from sandpool.load.work import Work

    wanted = pool.wanted(secrets.token_hex(3), natural, cluster.kubeconfig is None, cluster.fresh)
    settings = Settings(
        wanted,
        Work(work.dwelling(dwell), duration(work.timeout, "--timeout")),
        connections=min(work.connections, len(arrivals)) if arrivals else work.connections,
        fill_timeout=duration(work.fill_timeout, "--fill-timeout"),
        clean_timeout=duration(work.clean_timeout, "--clean-timeout"),
        watch_sandboxes=work.watch_sandboxes,
        pools=tuple({each.pool for each in arrivals if each.pool}),
        command=work.exec_,
        files=work.file_size(),
        router=work.router,
    )
    audit = AuditLog(cluster.audit_log, cluster.audit_user) if cluster.audit_log else None
    return Plan(shape, settings, arrivals, climb, audit, report.note)


def measure(where: Where, plan: Plan, quiet: bool) -> Outcome:
    import signal

    import uvloop

    from sandpool.base.clock import SystemClock
    from sandpool.load.progress import progress
    from sandpool.load.run import run_load
    from sandpool.loop.lifetimes import first_error

    async def main() -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        watcher = progress(quiet)
        async with watcher.showing():
            return await run_load(where, plan, SystemClock(), watcher)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(main())
        except ExceptionGroup as group:
            raise first_error(group) from None
        except asyncio.CancelledError:  # by SIGTERM
            raise KeyboardInterrupt from None


def _tell(outcome: Outcome, report: ReportFlags) -> None:
    from sandpool.load.page.page import page
    from sandpool.load.record import write_lines
    from sandpool.load.table import table

    if report.raw is not None:
        write_lines(report.raw.expanduser(), outcome.lines())
    if report.html is not None:
        text = page(outcome.result, outcome.records, outcome.pool_levels)
        report.html.expanduser().write_text(text)
    if report.output == "json":
        print(msgspec.json.encode(outcome.result).decode())
    else:
        print(table(outcome.result, [each for record in outcome.records if (each := record.latency) is not None]))


load = App(name="load", help="Load a cluster with claims and report the results.")

ClaimsFlag = Annotated[int, Parameter(name="--claims", help="How many claims arrive at once.")]
RateFlag = Annotated[float, Parameter(name="--rate", help="Claims a second.")]
ForFlag = Annotated[str, Parameter(name="--for", help="How long claims arrive, such as 30s or 5m.")]
SeedFlag = Annotated[int, Parameter(name="--seed", help="The same seed gives the same arrival times.")]
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
    """All claims at once, on a full pool."""
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
    """Independent arrivals: a given rate on average, randomly clustered (a Poisson process)."""
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
    factor: Annotated[float, Parameter(help="Factor by which the rate grows at each step.")] = 1.5,
    p99: Annotated[float, Parameter(name="--p99", help="Highest allowed p99, in milliseconds.")] = 100.0,
    hold: Annotated[str, Parameter(help="How long each rate is held.")] = "10s",
    refine: Annotated[int, Parameter(help="Steps to narrow down the limit once a rate was not held.")] = 3,
    most: Annotated[float, Parameter(help="The highest rate to try.")] = 10_000.0,
    past: Annotated[
        tuple[float, ...],
        Parameter(
            negative="",
            help="Then offer this multiple of the highest rate that was held, and report what was served. Repeatable.",
        ),
    ] = (),
    past_for: Annotated[str, Parameter(help="How long each of --past is offered.")] = "30s",
    cluster: ClusterFlags = ClusterFlags(),
    pool: PoolFlags = PoolFlags(),
    work: WorkFlags = WorkFlags(),
    report: ReportFlags = ReportFlags(),
) -> None:
    """Raise the rate until the p99 is too high or claims fail, and report the highest rate that was held and what is served past it."""
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
    """Claims at the times of a recorded trace."""
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
    a: Annotated[Path, Parameter(help="A result (-o json or --raw), or a directory with results of several runs.")],
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
    """Pool size for a rate: members are claimed while others start. A larger pool would only measure its stock."""
    return max(100, int(min(2 * rate, _LARGEST)))
