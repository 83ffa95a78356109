"""The gate in virtual time: the event loop's clock jumps to the next timer, so no test waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from sandpool.base.clock import LoopClock
from sandpool.base.rate_limit import TokenBucket
from sandpool.kube.pacing import Bounds, Outcome, Pacer
from sandpool.kube.priority import WEIGHTS, Priority, expedited
from sandpool.kube.priority_gate import PriorityGate

pytestmark = pytest.mark.looptime

START = datetime(2026, 1, 1, tzinfo=UTC)


def a_gate(
    width: int = 4, patience: float = 2.0, qps: float = 0, burst: int = 1, pacer: Pacer | None = None
) -> PriorityGate:
    return PriorityGate(LoopClock(START), width=width, patience=patience, bucket=TokenBucket(qps, burst), pacer=pacer)


def now() -> float:
    return asyncio.get_running_loop().time()


class Log:
    """Who passed, and when."""

    def __init__(self, gate: PriorityGate) -> None:
        self.gate = gate
        self.passed: list[tuple[str, float]] = []
        self.most = 0

    async def write(self, name: str, lane: Priority, lasts: float) -> None:
        await self.gate.enter(lane, write=True)
        try:
            self.most = max(self.most, self.gate.in_flight)
            self.passed.append((name, now()))
            await asyncio.sleep(lasts)
        finally:
            self.gate.leave(lane)

    async def read(self, name: str, lane: Priority) -> None:
        await self.gate.enter(lane, write=False)
        self.passed.append((name, now()))

    def when(self, name: str) -> list[float]:
        return [at for who, at in self.passed if who == name]


async def test_writes_in_flight_are_bounded() -> None:
    log = Log(a_gate(width=3))
    async with asyncio.TaskGroup() as group:
        for _ in range(9):
            group.create_task(log.write("u", Priority.URGENT, 1))
    assert log.most == 3
    assert log.when("u") == [0] * 3 + [1] * 3 + [2] * 3
    assert log.gate.in_flight == log.gate.waiting == 0


async def test_what_ends_something_goes_before_what_begins_something() -> None:
    """Twelve at once, each of two writes, two at a time: some are done after a few turns, not all after seven and more."""
    log = Log(a_gate(width=2))
    ends: list[float] = []

    async def claim() -> None:
        await log.write("begin", Priority.URGENT, 1)
        with expedited():
            await log.write("end", Priority.URGENT, 1)
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
        group.create_task(log.write("holder", Priority.URGENT, 1))
        await asyncio.sleep(0)
        for name in ("transfer", "other"):
            group.create_task(log.write(name, Priority.URGENT, 1))
        with expedited():
            for name in ("oldest", "older", "newest"):
                group.create_task(log.write(name, Priority.URGENT, 1))
    assert [name for name, _ in log.passed] == ["holder", "oldest", "older", "newest", "transfer", "other"]


async def test_a_write_that_is_sent_again_keeps_its_place() -> None:
    gate = a_gate(width=1)
    first = await gate.enter(Priority.URGENT, write=True)
    gate.leave(Priority.URGENT)  # throttled: it pauses
    order: list[str] = []

    async def write(name: str, arrival: int | None = None) -> None:
        await gate.enter(Priority.URGENT, True, arrival)
        order.append(name)
        gate.leave(Priority.URGENT)

    await gate.enter(Priority.STATUS, write=True)
    async with asyncio.TaskGroup() as group:
        for name in ("second", "third"):
            group.create_task(write(name))
        await asyncio.sleep(0)
        group.create_task(write("first", first))
        await asyncio.sleep(0)
        gate.leave(Priority.STATUS)
    assert order == ["first", "second", "third"]


async def test_without_urgent_writes_no_priority_waits_for_another() -> None:
    log = Log(a_gate(width=4))
    async with asyncio.TaskGroup() as group:
        for lane in (Priority.STATUS, Priority.CLEANUP, Priority.BACKGROUND):
            group.create_task(log.write(lane.name, lane, 5))
    assert [at for _, at in log.passed] == [0] * 3


@pytest.mark.parametrize(("lasts", "rests"), [(0.25, 0.25), (30, 0.5)])
async def test_while_there_is_room_others_wait_for_a_moment(lasts: float, rests: float) -> None:
    log = Log(a_gate(width=8))
    async with asyncio.TaskGroup() as group:
        for lane in Priority:
            group.create_task(log.write(lane.name, lane, lasts))
    assert [at for _, at in log.passed] == [0] + [rests] * 3


async def test_background_writes_do_not_wait_while_claims_wait_for_members() -> None:
    pressed = False
    log = Log(a_gate(width=8))
    log.gate.expedite_background_while(lambda: pressed)
    async with asyncio.TaskGroup() as group:
        group.create_task(log.write("claim", Priority.URGENT, 30))
        for lane in (Priority.BACKGROUND, Priority.STATUS):
            group.create_task(log.write(lane.name, lane, 1))
        await asyncio.sleep(0.25)
        pressed = True
        log.gate.recheck()
        await asyncio.sleep(0)
        assert log.gate.enter_now(Priority.BACKGROUND) is False, "somebody rests: nobody overtakes"
    assert log.passed == [("claim", 0), ("BACKGROUND", 0.25), ("STATUS", 0.5)]


@pytest.mark.parametrize("lane", list(Priority))
async def test_alone_a_priority_has_everything(lane: Priority) -> None:
    log = Log(a_gate(width=4))
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(log.write("x", lane, 1))
    assert log.when("x") == [0] * 4 + [1] * 4


async def test_priorities_that_have_waited_take_turns_by_weight() -> None:
    log = Log(a_gate(width=1, patience=0))
    async with asyncio.TaskGroup() as group:
        for lane in Priority:
            for _ in range(40):
                group.create_task(log.write(lane.name, lane, 1))
    turns = Counter(name for name, _ in log.passed[:80])
    assert turns == pytest.approx({lane.name: 10 * WEIGHTS[lane] for lane in Priority}, abs=1)


async def test_what_claims_wait_for_goes_first_for_a_while() -> None:
    """And then every other turn: a first lane that never becomes quiet cannot keep another one out, nor that the first."""
    log = Log(a_gate(width=1, patience=2))
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(log.write("c", Priority.URGENT, 1))
        for _ in range(3):
            group.create_task(log.write("r", Priority.BACKGROUND, 1))
    assert "".join(name for name, _ in log.passed) == "ccrcrcrcccc"


async def test_while_claims_wait_for_members_background_writes_take_turns_at_once() -> None:
    """Also when claims were alone for long and have a long queue."""
    pressed = False
    log = Log(a_gate(width=1, patience=1000))
    log.gate.expedite_background_while(lambda: False)
    log.gate.expedite_background_while(lambda: pressed)
    async with asyncio.TaskGroup() as group:
        for _ in range(60):
            group.create_task(log.write("claim", Priority.URGENT, 1))
        for lane in (Priority.BACKGROUND, Priority.STATUS):
            for _ in range(10):
                group.create_task(log.write(lane.name, lane, 1))
        await asyncio.sleep(30.5)
        pressed = True
    assert log.when("BACKGROUND") == [31 + 2 * turn for turn in range(10)]
    assert log.when("STATUS") == [70 + turn for turn in range(10)]


async def test_a_place_is_given_back_by_whoever_is_cancelled_while_holding_it() -> None:
    log = Log(a_gate(width=1))
    async with asyncio.TaskGroup() as group:
        holder = group.create_task(log.write("holder", Priority.URGENT, 100))
        await asyncio.sleep(1)
        group.create_task(log.write("next", Priority.URGENT, 1))
        await asyncio.sleep(1)
        holder.cancel()
    assert log.when("next") == [2]


async def test_whoever_is_cancelled_while_waiting_leaves_no_trace() -> None:
    log = Log(a_gate(width=1))
    async with asyncio.TaskGroup() as group:
        group.create_task(log.write("holder", Priority.URGENT, 5))
        await asyncio.sleep(0)
        waiter = group.create_task(log.write("waiter", Priority.URGENT, 1))
        last = group.create_task(log.write("last", Priority.URGENT, 1))
        await asyncio.sleep(1)
        waiter.cancel()
        await last
    assert [name for name, _ in log.passed] == ["holder", "last"]
    assert log.gate.waiting == log.gate.in_flight == 0


async def test_permission_that_meets_cancellation_is_given_back() -> None:
    gate = a_gate(width=1)
    await gate.enter(Priority.URGENT, write=True)
    waiter = asyncio.ensure_future(gate.enter(Priority.URGENT, write=True))
    await asyncio.sleep(0)
    gate.leave(Priority.URGENT)  # grants the waiter, whose task has not run yet
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert gate.in_flight == 0


async def test_cancellation_that_meets_a_free_place_does_not_waste_it() -> None:
    gate = a_gate(width=1)
    await gate.enter(Priority.URGENT, write=True)
    doomed = asyncio.ensure_future(gate.enter(Priority.URGENT, write=True))
    other = asyncio.ensure_future(gate.enter(Priority.URGENT, write=True))
    await asyncio.sleep(0)
    doomed.cancel()
    gate.leave(Priority.URGENT)  # the doomed one's task has not run yet
    await other
    assert doomed.cancelled()
    assert (gate.in_flight, gate.waiting) == (1, 0)
    gate.leave(Priority.URGENT)


async def test_reads_need_no_place() -> None:
    log = Log(a_gate(width=1))
    async with asyncio.TaskGroup() as group:
        group.create_task(log.write("u", Priority.URGENT, 5))
        await asyncio.sleep(1)
        group.create_task(log.read("r", Priority.BACKGROUND))
    assert log.when("r") == [1]


async def test_the_rate_holds_for_all_priorities_and_they_take_turns() -> None:
    log = Log(a_gate(width=10, patience=0, qps=1, burst=1))
    async with asyncio.TaskGroup() as group:
        group.create_task(log.read("first", Priority.BACKGROUND))
        await asyncio.sleep(0)
        for _ in range(2):
            group.create_task(log.write("b", Priority.BACKGROUND, 0.1))
        for _ in range(3):
            group.create_task(log.read("r", Priority.URGENT))
    assert [name for name, _ in log.passed] == ["first", "r", "r", "b", "r", "b"], "the first one was a turn, too"
    assert [at for _, at in log.passed] == pytest.approx([0, 1, 2, 3, 4, 5], abs=1e-3)


@pytest.mark.parametrize("lane", list(Priority))
async def test_a_stream_of_reads_does_not_keep_a_write_from_its_token(lane: Priority) -> None:
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
    assert gate.enter_now(Priority.BACKGROUND)
    assert gate.enter_now(Priority.BACKGROUND), "nobody else wants a place"
    assert not gate.enter_now(Priority.URGENT)
    assert (gate.in_flight, gate.in_lane(Priority.BACKGROUND), gate.in_lane(Priority.URGENT)) == (2, (2, 0), (0, 0))
    gate.leave(Priority.BACKGROUND)
    assert gate.enter_now(Priority.URGENT)
    gate.leave(Priority.URGENT)
    gate.leave(Priority.BACKGROUND)


async def test_nobody_overtakes_who_waits_already() -> None:
    gate = a_gate(width=1)
    assert gate.enter_now(Priority.URGENT)
    waiter = asyncio.ensure_future(gate.enter(Priority.BACKGROUND, write=True))
    await asyncio.sleep(0)
    gate.leave(Priority.URGENT)  # the waiter has the place, though its task has not run yet
    assert not gate.enter_now(Priority.URGENT)
    await waiter
    gate.leave(Priority.BACKGROUND)


async def test_a_server_that_refuses_everything_is_left_alone_for_as_long_as_it_asks() -> None:
    gate = a_gate(width=4, pacer=Pacer(Bounds(most=4, start=4)))
    sent: list[float] = []

    async def write() -> None:
        while len(sent) < 100:
            await gate.enter(Priority.URGENT, write=True)
            sent.append(now())
            await asyncio.sleep(0.125)
            gate.record("patch x", Outcome.THROTTLED, sent[-1], 7.0)
            gate.leave(Priority.URGENT)

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
        await gate.enter(Priority.URGENT, write=True)
        log.most = max(log.most, gate.in_flight)
        at = now()
        await asyncio.sleep(1)
        gate.record("patch x", Outcome.SERVED, at)
        gate.leave(Priority.URGENT)

    async with asyncio.TaskGroup() as group:
        for _ in range(200):
            group.create_task(write())
    assert pacer.view.limit > 6
    assert (log.most, gate.allowed) == (6, 6)
