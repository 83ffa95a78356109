"""Runs one load from its options to its outcome: the numbers, and the records they were computed from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandpool.base.clock import Clock
from sandpool.kube.local_discovery import Running
from sandpool.load.arrivals import Arrival
from sandpool.load.audit import AuditLog
from sandpool.load.driver import Tally
from sandpool.load.fresh import fresh_cluster
from sandpool.load.machine import conditions
from sandpool.load.ramp import Climb, Ramp, Step, climb
from sandpool.load.ramp import lines as lines_of_steps
from sandpool.load.record import ClaimRecord, Line, PoolLevel, RunHeader
from sandpool.load.session import Measured, Settings, a_session
from sandpool.load.summary import summarise
from sandpool.load.target import Target

RESULT_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Where:
    """Which cluster: one that runs, one of a kubeconfig, or a new one of a backend."""

    running: Running | None = None
    kubeconfig: Path | None = None
    context: str = ""
    fresh: str = ""  # the backend
    fresh_flags: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    shape: dict[str, Any]  # what was asked for, for the report
    settings: Settings
    arrivals: Sequence[Arrival] = ()
    ramp: Ramp | None = None
    audit: AuditLog | None = None
    note: str = ""
    times: int = 1  # repetitions, each on a full pool


@dataclass(slots=True)
class Outcome:
    """Of a ramp, records and levels are those of the step whose numbers the result has; `steps` has all."""

    result: dict[str, Any]
    records: list[ClaimRecord]
    pool_levels: list[tuple[float, int]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def lines(self) -> Iterator[Line]:
        """What --raw keeps."""
        yield RunHeader(result=self.result)
        if self.steps:
            yield from lines_of_steps(self.steps)
            return
        yield from self.records
        yield from (PoolLevel(at=at, ready=ready) for at, ready in self.pool_levels)


class Watcher:
    """Shows the progress of a run; this one shows nothing."""

    def said(self, phase: str) -> None:
        """A new phase has begun."""

    def follows(self, tally: Tally) -> None:
        """The tally to show from now on."""


async def run_load(where: Where, plan: Plan, clock: Clock, watcher: Watcher) -> Outcome:
    around = conditions()  # before our own load is part of it
    async with _target(where, watcher.said) as target:
        async with a_session(target, plan.settings, clock, watcher.said, plan.audit) as session:
            watcher.follows(session.tally)
            version = await session.version()
            watcher.said("driving claims")
            if plan.ramp is not None:
                found = await climb(session.measure, plan.ramp, watcher.said)
                outcome = _climbed(found)
            else:
                outcome = _outcome(await session.measure(plan.arrivals, plan.times))
            watcher.said("done")
        around |= {**target.as_dict(), "kubernetes_version": version, "note": plan.note}
    shape = {**plan.shape, "pool_size": session.stage.replicas, "connections": plan.settings.connections}
    shape |= {
        "dwell_s": plan.settings.work.dwell,
        "exec": bool(plan.settings.command),  # without the value: it may be a secret
        "files_bytes": plan.settings.files or None,
    }
    outcome.result["left_behind"] = session.stage.left
    outcome.result = {"format": RESULT_FORMAT, **outcome.result, "load": shape, "conditions": around}
    return outcome


@asynccontextmanager
async def _target(where: Where, said: Callable[[str], None]) -> AsyncIterator[Target]:
    if where.fresh:
        said(f"starting a temporary cluster with the backend {where.fresh}")
        async with fresh_cluster(where.fresh, where.fresh_flags) as running:
            yield Target.of(Path(running.kubeconfig), running=running, fresh=True, metrics=where.metrics)
    elif where.running is not None:
        yield Target.of(Path(where.running.kubeconfig), running=where.running, metrics=where.metrics)
    else:
        assert where.kubeconfig is not None
        yield Target.of(where.kubeconfig, where.context, metrics=where.metrics)


def _outcome(measured: Measured) -> Outcome:
    result = summarise(measured.records, measured.counts, measured.used)
    result["refilled_s"] = None if measured.refilled is None else round(measured.refilled, 3)
    if len(measured.refills) > 1:
        result["refills_s"] = [None if each is None else round(each, 3) for each in measured.refills]
    result["watch_restarts"] = measured.watch_restarts
    result["error_examples"] = measured.examples
    return Outcome(result, measured.records, measured.pool_levels)


def _climbed(found: Climb) -> Outcome:
    """The numbers are those of the highest rate that was held; `steps` has every step."""
    outcome = _outcome(found.best or found.steps[-1].measured)
    outcome.result["highest_rate"] = found.highest
    outcome.result["limited_by"] = found.limited_by
    outcome.result["steps"] = [step.as_dict() for step in found.steps]
    outcome.result["past"] = [past.as_dict() for past in found.past]
    outcome.steps = [*found.steps, *(past.step for past in found.past)]
    return outcome
