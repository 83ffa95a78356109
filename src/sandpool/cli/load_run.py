"""A run of `sandpool load`, from its flags to what is printed and written; Ctrl-C and SIGTERM end it in order."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from sandpool.cli.durations import duration
from sandpool.cli.exits import FAILED, USAGE, Exit
from sandpool.cli.load_flags import ClusterFlags, PoolFlags, ReportFlags, WorkFlags

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
    outcome = _run(where, plan, report.quiet)
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


def _run(where: Where, plan: Plan, quiet: bool) -> Outcome:
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
