"""The gate in virtual time: the event loop's clock jumps to the next timer, so no test waits."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from sandpool.kube.lanes import Lane, LaneGate, finishing
from sandpool.kube.rate import TokenBucket
from sandpool.loop.clock import LoopClock

pytestmark = pytest.mark.looptime

START = datetime(2026, 1, 1, tzinfo=UTC)


def a_gate(width: int = 4, rest: float = 2.0, qps: float = 0, burst: int = 1) -> LaneGate:
    return LaneGate(LoopClock(START), width=width, rest=rest, bucket=TokenBucket(qps, burst))


def now() -> float:
    return asyncio.get_running_loop().time()


class Log:
    """Who passed, and when."""

    def __init__(self, gate: LaneGate) -> None:
        self.gate = gate
        self.passed: list[tuple[str, float]] = []
        self.most = 0

    async def write(self, name: str, lane: Lane, lasts: float) -> None:
        await self.gate.enter(lane, write=True)
        try:
            self.most = max(self.most, self.gate.in_flight)
            self.passed.append((name, now()))
            await asyncio.sleep(lasts)
        finally:
            self.gate.leave(lane)

    async def read(self, name: str, lane: Lane) -> None:
        await self.gate.enter(lane, write=False)
        self.passed.append((name, now()))

    def when(self, name: str) -> list[float]:
        return [at for who, at in self.passed if who == name]


async def test_writes_in_flight_are_bounded() -> None:
    log = Log(a_gate(width=3))
    async with asyncio.TaskGroup() as group:
        for _ in range(9):
            group.create_task(log.write("u", Lane.URGENT, 1))
    assert log.most == 3
    assert log.when("u") == [0] * 3 + [1] * 3 + [2] * 3
    assert log.gate.in_flight == log.gate.waiting == 0


async def test_what_ends_something_goes_before_what_begins_something() -> None:
    """Twelve at once, each of two writes, two at a time: some are done after a few turns, not all after seven and more."""
    log = Log(a_gate(width=2))
    ends: list[float] = []

    async def claim() -> None:
        await log.write("begin", Lane.URGENT, 1)
        with finishing():
            await log.write("end", Lane.URGENT, 1)
        ends.append(now())

    async with asyncio.TaskGroup() as group:
        for _ in range(12):
            group.create_task(claim())
    assert (ends[0], ends[-1]) == (2, 12)
    assert ends[len(ends) // 2] <= 8
    assert log.most == 2


async def test_the_second_lane_rests_while_the_first_is_busy() -> None:
    log = Log(a_gate())
    async with asyncio.TaskGroup() as group:
        group.create_task(log.write("u", Lane.URGENT, 0.5))
        group.create_task(log.write("b", Lane.BACKGROUND, 0.1))
    assert log.passed == [("u", 0), ("b", 0.5)]


async def test_but_for_two_seconds_at_most() -> None:
    log = Log(a_gate())
    async with asyncio.TaskGroup() as group:
        group.create_task(log.write("u", Lane.URGENT, 30))
        group.create_task(log.write("b", Lane.BACKGROUND, 0.1))
    assert log.when("b") == [2.0]


async def test_what_makes_what_is_waited_for_takes_turns_at_once() -> None:
    gate, hungry = a_gate(width=1, rest=1_000), False
    gate.hurry(lambda: hungry)
    log = Log(gate)
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(log.write("u", Lane.URGENT, 1))
        group.create_task(log.write("b", Lane.BACKGROUND, 1))
        await asyncio.sleep(1.5)
        assert log.when("b") == []
        hungry = True
        gate.look()
    assert log.when("b") == [2], "the next turn is its own"
    assert log.when("u") == [0, 1, 3, 4]


async def test_alone_the_second_lane_does_not_rest() -> None:
    log = Log(a_gate())
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(log.write("b", Lane.BACKGROUND, 1))
    assert log.when("b") == [0, 0]


async def test_the_second_lane_leaves_half_of_the_places() -> None:
    log = Log(a_gate(width=4))
    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(log.write("b", Lane.BACKGROUND, 1))
        await asyncio.sleep(0.25)
        for _ in range(2):
            group.create_task(log.write("u", Lane.URGENT, 0.25))
    assert log.when("u") == [0.25, 0.25]
    assert log.when("b") == [0, 0, 1, 1, 2, 2]


async def test_after_its_rest_the_second_lane_takes_turns() -> None:
    """A first lane that never becomes quiet cannot keep the second out, nor the second, once rested, the first."""
    log = Log(a_gate(width=1, rest=2))
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(log.write("u", Lane.URGENT, 1))
        for _ in range(3):
            group.create_task(log.write("b", Lane.BACKGROUND, 1))
    order = "".join(name for name, _ in log.passed)
    assert order == "uubububuuuu"


async def test_a_place_is_given_back_by_whoever_is_cancelled_while_holding_it() -> None:
    log = Log(a_gate(width=1))
    async with asyncio.TaskGroup() as group:
        holder = group.create_task(log.write("holder", Lane.URGENT, 100))
        await asyncio.sleep(1)
        group.create_task(log.write("next", Lane.URGENT, 1))
        await asyncio.sleep(1)
        holder.cancel()
    assert log.when("next") == [2]


async def test_whoever_is_cancelled_while_waiting_leaves_no_trace() -> None:
    log = Log(a_gate(width=1))
    async with asyncio.TaskGroup() as group:
        group.create_task(log.write("holder", Lane.URGENT, 5))
        await asyncio.sleep(0)
        waiter = group.create_task(log.write("waiter", Lane.URGENT, 1))
        last = group.create_task(log.write("last", Lane.URGENT, 1))
        await asyncio.sleep(1)
        waiter.cancel()
        await last
    assert [name for name, _ in log.passed] == ["holder", "last"]
    assert log.gate.waiting == log.gate.in_flight == 0


async def test_a_cancelled_first_lane_lets_the_second_go_at_once() -> None:
    log = Log(a_gate(width=2))
    async with asyncio.TaskGroup() as group:
        urgent = group.create_task(log.write("u", Lane.URGENT, 100))
        await asyncio.sleep(0)
        group.create_task(log.write("b", Lane.BACKGROUND, 1))
        await asyncio.sleep(0.5)
        urgent.cancel()
    assert log.when("b") == [0.5]


async def test_permission_that_meets_cancellation_is_given_back() -> None:
    gate = a_gate(width=1)
    await gate.enter(Lane.URGENT, write=True)
    waiter = asyncio.ensure_future(gate.enter(Lane.URGENT, write=True))
    await asyncio.sleep(0)
    gate.leave(Lane.URGENT)  # grants the waiter, whose task has not run yet
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert gate.in_flight == 0


async def test_cancellation_that_meets_a_free_place_does_not_waste_it() -> None:
    gate = a_gate(width=1)
    await gate.enter(Lane.URGENT, write=True)
    doomed = asyncio.ensure_future(gate.enter(Lane.URGENT, write=True))
    other = asyncio.ensure_future(gate.enter(Lane.URGENT, write=True))
    await asyncio.sleep(0)
    doomed.cancel()
    gate.leave(Lane.URGENT)  # the doomed one's task has not run yet
    await other
    assert doomed.cancelled()
    assert (gate.in_flight, gate.waiting) == (1, 0)
    gate.leave(Lane.URGENT)


async def test_reads_need_no_place() -> None:
    log = Log(a_gate(width=1))
    async with asyncio.TaskGroup() as group:
        group.create_task(log.write("u", Lane.URGENT, 5))
        await asyncio.sleep(1)
        group.create_task(log.read("r", Lane.BACKGROUND))
    assert log.when("r") == [1]


async def test_the_rate_holds_for_both_lanes_and_the_first_goes_first() -> None:
    log = Log(a_gate(width=10, rest=60, qps=1, burst=1))
    async with asyncio.TaskGroup() as group:
        group.create_task(log.read("first", Lane.BACKGROUND))
        await asyncio.sleep(0)
        for _ in range(2):
            group.create_task(log.write("b", Lane.BACKGROUND, 0.1))
        for _ in range(2):
            group.create_task(log.read("r", Lane.URGENT))
    assert [name for name, _ in log.passed] == ["first", "r", "r", "b", "b"]
    assert [at for _, at in log.passed] == pytest.approx([0, 1, 2, 3, 4], abs=1e-3)


@pytest.mark.parametrize("lane", list(Lane))
async def test_a_stream_of_reads_does_not_keep_a_write_from_its_token(lane: Lane) -> None:
    gate = a_gate(qps=10, burst=1)
    log = Log(gate)
    reads = [asyncio.create_task(log.read("early", lane)) for _ in range(5)]
    await asyncio.sleep(0)
    write = asyncio.create_task(log.write("write", lane, 0))
    for _ in range(40):  # twice as many as there are tokens
        reads += [asyncio.create_task(log.read("late", lane)) for _ in range(2)]
        await asyncio.sleep(0.1)
    assert log.when("write")
    assert log.when("write")[0] < 1
    for task in (*reads, write):
        task.cancel()
    await asyncio.wait((*reads, write))


async def test_who_need_not_wait_is_told_so_at_once() -> None:
    gate = a_gate(width=2)
    assert gate.enter_now(Lane.BACKGROUND)
    assert not gate.enter_now(Lane.BACKGROUND), "never more than half of the places"
    assert gate.enter_now(Lane.URGENT)
    assert not gate.enter_now(Lane.URGENT)
    assert gate.in_flight == 2
    gate.leave(Lane.BACKGROUND)
    assert not gate.enter_now(Lane.BACKGROUND), "the first lane is at work"
    gate.leave(Lane.URGENT)
    assert gate.enter_now(Lane.BACKGROUND)
    gate.leave(Lane.BACKGROUND)
