"""Any schedule of writes, reads and cancellations passes the gate: bounded, in time, and nobody is forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandpool.base.clock import LoopClock
from sandpool.base.rate_limit import TokenBucket
from sandpool.kube.pacing import Outcome
from sandpool.kube.priority import Priority
from sandpool.kube.priority_gate import PriorityGate


@dataclass(frozen=True)
class Request:
    lane: Priority
    write: bool
    at: float
    lasts: float
    gives_up: float | None  # so long after `at`
    refusals: int = 0  # of a write, before it is served


# Powers of two, so that virtual time adds up without rounding.
TIMES = st.integers(0, 40).map(lambda eighths: eighths / 8)


def a_request(refusals: st.SearchStrategy[int]) -> st.SearchStrategy[Request]:
    return st.builds(
        Request,
        lane=st.sampled_from(Priority),
        write=st.booleans(),
        at=TIMES,
        lasts=TIMES,
        gives_up=st.none() | TIMES,
        refusals=refusals,
    )


class Run:
    def __init__(self, width: int, qps: float, burst: int) -> None:
        self.width, self.qps, self.burst = width, qps, burst
        self.gate = PriorityGate(
            LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), width=width, bucket=TokenBucket(qps, burst)
        )
        self.flying = dict.fromkeys(Priority, 0)
        self.passed: list[float] = []
        self.waits: list[tuple[Request, float]] = []

    async def one(self, request: Request) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(request.at)
        try:
            async with asyncio.timeout(request.gives_up):
                arrival = await self.gate.enter(request.lane, request.write)
                if request.write:
                    await self.refuse(request, arrival)
                self.waits.append((request, loop.time() - request.at))
                self.passed.append(loop.time())
                if request.write:
                    await self.hold(request)
        except TimeoutError:
            pass

    async def refuse(self, request: Request, arrival: int) -> None:
        early = 0
        for _ in range(request.refusals):
            self.passed.append(asyncio.get_running_loop().time())
            self.gate.record("patch x", Outcome.THROTTLED, self.passed[-1], 1.0)
            self.gate.leave(request.lane)
            early += await self.gate.enter_again(request.lane, arrival, early, 1.0)

    async def hold(self, request: Request) -> None:
        self.flying[request.lane] += 1
        try:
            # Others may have been let through whose tasks have not run yet.
            assert sum(self.flying.values()) <= self.gate.in_flight <= self.width
            await asyncio.sleep(request.lasts)
            self.gate.record("patch x", Outcome.SERVED, 0.0)
        finally:
            self.flying[request.lane] -= 1
            self.gate.leave(request.lane)

    async def all(self, requests: list[Request]) -> None:
        async with asyncio.timeout(10_000), asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(self.one(request))


def play(requests: list[Request], width: int, qps: float, burst: int) -> Run:
    async def main() -> Run:
        run = Run(width, qps, burst)
        await run.all(requests)
        return run

    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        return runner.run(main())


def check(run: Run, requests: list[Request]) -> None:
    assert (run.gate.in_flight, run.gate.waiting) == (0, 0)
    patient = sum(request.gives_up is None for request in requests)
    assert len(run.passed) >= patient, "whoever waits long enough passes"
    if run.qps > 0:
        for index, at in enumerate(run.passed):
            assert index + 1 <= run.burst + at * run.qps + 1e-3
    else:
        assert all(wait == 0 for request, wait in run.waits if not request.write)
    if run.qps <= 0 and run.width >= len(requests) and not any(request.refusals for request in requests):
        for request, wait in run.waits:
            assert wait <= (0.0 if request.lane is Priority.URGENT else 0.5), (
                "with room for all, only the rest is waited for"
            )


def schedules(refusals: st.SearchStrategy[int]) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "requests": st.lists(a_request(refusals), max_size=14),
        "width": st.sampled_from([1, 2, 3, 64]),
        "qps": st.sampled_from([0.0, 0.0, 0.5, 4.0]),
        "burst": st.integers(1, 4),
    }


TAKEN, REFUSED = schedules(st.just(0)), schedules(st.sampled_from([0, 0, 1, 3]))


@given(**TAKEN)
@settings(deadline=None)
def test_schedules(requests: list[Request], width: int, qps: float, burst: int) -> None:
    check(play(requests, width, qps, burst), requests)


@given(**REFUSED)
@settings(deadline=None)
def test_schedules_with_refusals(requests: list[Request], width: int, qps: float, burst: int) -> None:
    check(play(requests, width, qps, burst), requests)


@pytest.mark.long
@given(**TAKEN)
@settings(deadline=None, max_examples=5000)
def test_many_schedules(requests: list[Request], width: int, qps: float, burst: int) -> None:
    check(play(requests, width, qps, burst), requests)


@pytest.mark.long
@given(**REFUSED)
@settings(deadline=None, max_examples=5000)
def test_many_schedules_with_refusals(requests: list[Request], width: int, qps: float, burst: int) -> None:
    check(play(requests, width, qps, burst), requests)
