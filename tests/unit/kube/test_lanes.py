"""The gate in virtual time: the event loop's clock jumps to the next timer, so no test waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from sandpool.base.clock import LoopClock
from sandpool.base.rate_limit import TokenBucket
from sandpool.kube.lanes import WEIGHTS, Lane, LaneGate, finishing
from sandpool.kube.pacing import Bounds, Outcome, Pacer

pytestmark = pytest.mark.looptime

START = datetime(2026, 1, 1, tzinfo=UTC)


def a_gate(
    width: int = 4, patience: float = 2.0, qps: float = 0, burst: int = 1, pacer: Pacer | None = None
) -> LaneGate:
    return LaneGate(LoopClock(START), width=width, patience=patience, bucket=TokenBucket(qps, burst), pacer=pacer)


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
            group.create_task(log.write("u", Lane.CLAIMS, 1))
    assert log.most == 3
    assert log.when("u") == [0] * 3 + [1] * 3 + [2] * 3
    assert log.gate.in_flight == log.gate.waiting == 0


async def test_what_ends_something_goes_before_what_begins_something() -> None:
    """Twelve at once, each of two writes, two at a time: some are done after a few turns, not all after seven and more."""
    log = Log(a_gate(width=2))
    ends: list[float] = []

    async def claim() -> None:
        await log.write("begin", Lane.CLAIMS, 1)
        with finishing():
            await log.write("end", Lane.CLAIMS, 1)
        ends.append(now())

    async with asyncio.TaskGroup() as group:
        for _ in range(12):
            group.create_task(claim())
    assert (ends[0], ends[-1]) == (2, 12)
    assert ends[len(ends) // 2] <= 8
    assert log.most == 2


async def test_bindings_that_wait_are_sent_in_the_order_in_which_they_came() -> None:
    gate = a_gate(width=1)
    log = Log(gate)
    async with asyncio.TaskGroup() as group:
        group.create_task(log.write("holder", Lane.CLAIMS, 1))
        await asyncio.sleep(0)
        for name in ("transfer", "other"):
            group.create_task(log.write(name, Lane.CLAIMS, 1))
        with finishing():
            for name in ("oldest", "older", "newest"):
                group.create_task(log.write(name, Lane.CLAIMS, 1))
    assert [name for name, _ in log.passed] == ["holder", "oldest", "older", "newest", "transfer", "other"]


async def test_a_write_that_is_sent_again_keeps_its_place() -> None:
    gate = a_gate(width=1)
    first = await gate.enter(Lane.CLAIMS, write=True)
    gate.leave(Lane.CLAIMS)  # throttled: it pauses
    order: list[str] = []

    async def write(name: str, arrival: int | None = None) -> None:
        await gate.enter(Lane.CLAIMS, True, arrival)
        order.append(name)
        gate.leave(Lane.CLAIMS)

    await gate.enter(Lane.STATUS, write=True)
    async with asyncio.TaskGroup() as group:
        for name in ("second", "third"):
            group.create_task(write(name))
        await asyncio.sleep(0)
        group.create_task(write("first", first))
        await asyncio.sleep(0)
        gate.leave(Lane.STATUS)
    assert order == ["first", "second", "third"]


async def test_without_writes_of_claims_no_lane_waits_for_another() -> None:
    log = Log(a_gate(width=4))
    async with asyncio.TaskGroup() as group:
        for lane in (Lane.STATUS, Lane.CLEANUP, Lane.REFILL):
            group.create_task(log.write(lane.name, lane, 5))
    assert [at for _, at in log.passed] == [0] * 3


@pytest.mark.parametrize(("lasts", "rests"), [(0.25, 0.25), (30, 0.5)])
async def test_while_there_is_room_others_rest_for_a_moment(lasts: float, rests: float) -> None:
    log = Log(a_gate(width=8))
    async with asyncio.TaskGroup() as group:
        for lane in Lane:
            group.create_task(log.write(lane.name, lane, lasts))
    assert [at for _, at in log.passed] == [0] + [rests] * 3


async def test_refill_does_not_rest_while_claims_wait_for_members() -> None:
    hurried = False
    log = Log(a_gate(width=8))
    log.gate.hurry(lambda: hurried)
    async with asyncio.TaskGroup() as group:
        group.create_task(log.write("claim", Lane.CLAIMS, 30))
        for lane in (Lane.REFILL, Lane.STATUS):
            group.create_task(log.write(lane.name, lane, 1))
        await asyncio.sleep(0.25)
        hurried = True
        log.gate.look()
        await asyncio.sleep(0)
        assert log.gate.enter_now(Lane.REFILL) is False, "somebody rests: nobody overtakes"
    assert log.passed == [("claim", 0), ("REFILL", 0.25), ("STATUS", 0.5)]


@pytest.mark.parametrize("lane", list(Lane))
async def test_alone_a_lane_has_everything(lane: Lane) -> None:
    log = Log(a_gate(width=4))
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(log.write("x", lane, 1))
    assert log.when("x") == [0] * 4 + [1] * 4


async def test_lanes_that_have_waited_take_turns_by_weight() -> None:
    log = Log(a_gate(width=1, patience=0))
    async with asyncio.TaskGroup() as group:
        for lane in Lane:
            for _ in range(40):
                group.create_task(log.write(lane.name, lane, 1))
    turns = Counter(name for name, _ in log.passed[:80])
    assert turns == pytest.approx({lane.name: 10 * WEIGHTS[lane] for lane in Lane}, abs=1)


async def test_what_claims_wait_for_goes_first_for_a_while() -> None:
    """And then every other turn: a first lane that never becomes quiet cannot keep another one out, nor that the first."""
    log = Log(a_gate(width=1, patience=2))
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(log.write("c", Lane.CLAIMS, 1))
        for _ in range(3):
            group.create_task(log.write("r", Lane.REFILL, 1))
    assert "".join(name for name, _ in log.passed) == "ccrcrcrcccc"


async def test_while_claims_wait_for_members_refill_takes_turns_at_once() -> None:
    """Also when claims were alone for long and have a long queue."""
    hurried = False
    log = Log(a_gate(width=1, patience=1000))
    log.gate.hurry(lambda: False)
    log.gate.hurry(lambda: hurried)
    async with asyncio.TaskGroup() as group:
        for _ in range(60):
            group.create_task(log.write("claim", Lane.CLAIMS, 1))
        for lane in (Lane.REFILL, Lane.STATUS):
            for _ in range(10):
                group.create_task(log.write(lane.name, lane, 1))
        await asyncio.sleep(30.5)
        hurried = True
    assert log.when("REFILL") == [31 + 2 * turn for turn in range(10)]
    assert log.when("STATUS") == [70 + turn for turn in range(10)]


async def test_a_place_is_given_back_by_whoever_is_cancelled_while_holding_it() -> None:
    log = Log(a_gate(width=1))
    async with asyncio.TaskGroup() as group:
        holder = group.create_task(log.write("holder", Lane.CLAIMS, 100))
        await asyncio.sleep(1)
        group.create_task(log.write("next", Lane.CLAIMS, 1))
        await asyncio.sleep(1)
        holder.cancel()
    assert log.when("next") == [2]


async def test_whoever_is_cancelled_while_waiting_leaves_no_trace() -> None:
    log = Log(a_gate(width=1))
    async with asyncio.TaskGroup() as group:
        group.create_task(log.write("holder", Lane.CLAIMS, 5))
        await asyncio.sleep(0)
        waiter = group.create_task(log.write("waiter", Lane.CLAIMS, 1))
        last = group.create_task(log.write("last", Lane.CLAIMS, 1))
        await asyncio.sleep(1)
        waiter.cancel()
        await last
    assert [name for name, _ in log.passed] == ["holder", "last"]
    assert log.gate.waiting == log.gate.in_flight == 0


async def test_permission_that_meets_cancellation_is_given_back() -> None:
    gate = a_gate(width=1)
    await gate.enter(Lane.CLAIMS, write=True)
    waiter = asyncio.ensure_future(gate.enter(Lane.CLAIMS, write=True))
    await asyncio.sleep(0)
    gate.leave(Lane.CLAIMS)  # grants the waiter, whose task has not run yet
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert gate.in_flight == 0


async def test_cancellation_that_meets_a_free_place_does_not_waste_it() -> None:
    gate = a_gate(width=1)
    await gate.enter(Lane.CLAIMS, write=True)
    doomed = asyncio.ensure_future(gate.enter(Lane.CLAIMS, write=True))
    other = asyncio.ensure_future(gate.enter(Lane.CLAIMS, write=True))
    await asyncio.sleep(0)
    doomed.cancel()
    gate.leave(Lane.CLAIMS)  # the doomed one's task has not run yet
    await other
    assert doomed.cancelled()
    assert (gate.in_flight, gate.waiting) == (1, 0)
    gate.leave(Lane.CLAIMS)


async def test_reads_need_no_place() -> None:
    log = Log(a_gate(width=1))
    async with asyncio.TaskGroup() as group:
        group.create_task(log.write("u", Lane.CLAIMS, 5))
        await asyncio.sleep(1)
        group.create_task(log.read("r", Lane.REFILL))
    assert log.when("r") == [1]


async def test_the_rate_holds_for_all_lanes_and_they_take_turns() -> None:
    log = Log(a_gate(width=10, patience=0, qps=1, burst=1))
    async with asyncio.TaskGroup() as group:
        group.create_task(log.read("first", Lane.REFILL))
        await asyncio.sleep(0)
        for _ in range(2):
            group.create_task(log.write("b", Lane.REFILL, 0.1))
        for _ in range(3):
            group.create_task(log.read("r", Lane.CLAIMS))
    assert [name for name, _ in log.passed] == ["first", "r", "r", "b", "r", "b"], "the first one was a turn, too"
    assert [at for _, at in log.passed] == pytest.approx([0, 1, 2, 3, 4, 5], abs=1e-3)


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
    assert gate.enter_now(Lane.REFILL)
    assert gate.enter_now(Lane.REFILL), "nobody else wants a place"
    assert not gate.enter_now(Lane.CLAIMS)
    assert (gate.in_flight, gate.in_lane(Lane.REFILL), gate.in_lane(Lane.CLAIMS)) == (2, (2, 0), (0, 0))
    gate.leave(Lane.REFILL)
    assert gate.enter_now(Lane.CLAIMS)
    gate.leave(Lane.CLAIMS)
    gate.leave(Lane.REFILL)


async def test_nobody_overtakes_who_waits_already() -> None:
    gate = a_gate(width=1)
    assert gate.enter_now(Lane.CLAIMS)
    waiter = asyncio.ensure_future(gate.enter(Lane.REFILL, write=True))
    await asyncio.sleep(0)
    gate.leave(Lane.CLAIMS)  # the waiter has the place, though its task has not run yet
    assert not gate.enter_now(Lane.CLAIMS)
    await waiter
    gate.leave(Lane.REFILL)


async def test_a_server_that_refuses_everything_is_left_alone_for_as_long_as_it_asks() -> None:
    gate = a_gate(width=4, pacer=Pacer(Bounds(most=4, start=4)))
    sent: list[float] = []

    async def write() -> None:
        while len(sent) < 100:
            await gate.enter(Lane.CLAIMS, write=True)
            sent.append(now())
            await asyncio.sleep(0.125)
            gate.learn("patch x", Outcome.THROTTLED, sent[-1], 7.0)
            gate.leave(Lane.CLAIMS)

    tasks = [asyncio.create_task(write()) for _ in range(20)]
    await asyncio.sleep(30)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert len(sent) <= 10
    assert [later - earlier for earlier, later in pairwise(sent[-3:])] == pytest.approx([7.125] * 2)
    assert gate.waiting == gate.in_flight == 0


async def test_the_width_is_the_most_that_answers_can_allow() -> None:
    pacer = Pacer(Bounds(most=50, start=2))
    gate = a_gate(width=6, pacer=pacer)
    log = Log(gate)

    async def write() -> None:
        await gate.enter(Lane.CLAIMS, write=True)
        log.most = max(log.most, gate.in_flight)
        at = now()
        await asyncio.sleep(1)
        gate.learn("patch x", Outcome.SERVED, at)
        gate.leave(Lane.CLAIMS)

    async with asyncio.TaskGroup() as group:
        for _ in range(200):
            group.create_task(write())
    assert pacer.view.limit > 6
    assert (log.most, gate.allowed) == (6, 6)
