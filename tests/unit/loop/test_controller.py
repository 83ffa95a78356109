from __future__ import annotations

import asyncio
import gc
import logging
import sys
import weakref
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.api import Event, EventType
from sandpool.kube.errors import (
    BadRequest,
    Cause,
    Conflict,
    Forbidden,
    InternalError,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from sandpool.kube.priority import Priority, UrgentWork, current_priority
from sandpool.loop.cache import Cache
from sandpool.loop.controller import Controller, Limits
from sandpool.loop.errors import Terminal, Unobserved
from sandpool.loop.outcome import Arm, Done, OutOfTime, classify
from sandpool.model.core import ConfigMap
from sandpool.model.kinds import CONFIG_MAPS
from sandpool.model.metadata import Key, Metadata, Revision, Uid
from sandpool.telemetry.metrics import OUTCOMES, Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory, note
from support.simulated.loop_cluster import START

pytestmark = pytest.mark.looptime

Outcomes = dict[str, list[Done | Exception]]


class Bench:
    """A controller whose reconciles end as a script says; then with Done."""

    def __init__(self, script: list[Any], limits: Limits = Limits(workers=2)) -> None:
        self.clock = LoopClock(START)
        self.metrics = Metrics()
        self.story = ReconcileHistory()
        self.script = script
        self.ran: list[tuple[str, float]] = []
        self.controller: Controller[str] = Controller(
            "test", self.reconcile, self.clock, self.metrics, self.story, limits
        )

    async def reconcile(self, key: str) -> Done:
        self.ran.append((key, round(self.clock.monotonic(), 3)))
        note(f"plan {len(self.ran)}")
        step = self.script.pop(0) if self.script else Done()
        if callable(step):
            step = await step()
        if isinstance(step, BaseException):
            raise step
        return step

    async def run(self, seconds: float, work: Callable[[], Awaitable[None]] | None = None) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.controller.run())
            if work is not None:
                await work()
            await asyncio.sleep(seconds)
            self.controller.stop()

    def count(self, outcome: str) -> float:
        return (
            self.metrics.registry.get_sample_value(
                "sandpool_reconciles_total", {"controller": "test", "outcome": outcome}
            )
            or 0.0
        )

    @property
    def moments(self) -> list[float]:
        return [moment for _, moment in self.ran]


async def test_done_is_done() -> None:
    bench = Bench([])
    bench.controller.wake("k", "test")
    await bench.run(1000)
    assert bench.ran == [("k", 0.0)]
    assert bench.count("done") == 1


async def test_again_at_and_again_after() -> None:
    bench = Bench([Done(again_after=10), Done(again_at=START + timedelta(seconds=25)), Done(again_at=START)])
    bench.controller.wake("k", "test")
    await bench.run(1000)
    assert bench.moments == [0, 10, 25, 25]
    assert bench.count("again") == 3


async def test_an_earlier_wake_up_replaces_the_pending_one() -> None:
    """Whoever looked at everything says anew when to look again; the old moment is not kept beside it."""
    bench = Bench([Done(again_after=100), Done(again_after=100)])
    bench.controller.wake("k", "test")

    async def meanwhile() -> None:
        await asyncio.sleep(50)
        bench.controller.wake("k", "changed")

    await bench.run(1000, meanwhile)
    assert bench.moments == [0, 50, 150]


async def test_a_terminal_end_keeps_the_pending_one() -> None:
    bench = Bench([Done(again_after=100), Terminal("TemplateMissing", "no template x")])
    bench.controller.wake("k", "test")

    async def meanwhile() -> None:
        await asyncio.sleep(50)
        bench.controller.wake("k", "changed")

    await bench.run(1000, meanwhile)
    assert bench.moments == [0, 50, 100]
    assert bench.count("terminal") == 1


async def test_a_moment_that_the_wall_clock_jumps_over_is_not_missed() -> None:
    """As when a machine slept: its timers did, too."""
    bench = Bench([Done(again_at=START + timedelta(hours=8)), Done()])
    bench.controller.wake("k", "test")

    async def meanwhile() -> None:
        await asyncio.sleep(100)
        bench.clock.jump(timedelta(hours=9))

    await bench.run(200, meanwhile)
    assert bench.moments == [0, 120], "at the next look at the clock"


async def test_a_moment_that_came_nearer_is_met() -> None:
    bench = Bench([Done(again_at=START + timedelta(seconds=1000)), Done()])
    bench.controller.wake("k", "test")

    async def meanwhile() -> None:
        await asyncio.sleep(100)
        bench.clock.jump(timedelta(seconds=500))

    await bench.run(2000, meanwhile)
    assert bench.moments == [0, 500], "and not at 1000"


@pytest.mark.parametrize("error", [Unreachable("cut"), Unavailable("down"), InternalError("broken")])
async def test_an_outage_is_over_soon_after_the_server_is_back(error: Exception) -> None:
    bench = Bench([error] * 100, Limits(workers=1, first_delay=1, longest_outage=15))
    bench.controller.wake("k", "test")
    await bench.run(100)
    assert bench.moments == [0, 1, 3, 7, 15, 30, 45, 60, 75, 90]


async def test_a_quota_that_is_raised_is_noticed_within_a_minute() -> None:
    bench = Bench([Forbidden("exceeded quota")] * 100)
    bench.controller.wake("k", "test")
    await bench.run(400)
    pauses = [after - before for before, after in pairwise(bench.moments)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60][: len(pauses)]
    assert max(pauses) == 60


async def test_errors_back_off_per_key_and_log_one_line_with_traceback(caplog: pytest.LogCaptureFixture) -> None:
    errors = [NotFound("x"), KeyError("y"), ZeroDivisionError()]
    bench = Bench([*errors, Done(), ValueError()], Limits(workers=1, first_delay=1, longest_delay=3))
    bench.controller.wake("k", "test")

    async def meanwhile() -> None:
        await asyncio.sleep(100)
        bench.controller.wake("k", "test")

    with caplog.at_level(logging.INFO, "sandpool"):
        await bench.run(1000, meanwhile)
    assert bench.moments == [0, 1, 3, 6, 100, 101], "1, 2, then 3 at most; success starts over"
    assert bench.count("error") == 4
    lines = [record for record in caplog.records if record.message == "reconcile failed"]
    assert len(lines) == 4
    assert all(line.exc_info for line in lines)
    assert lines[0].keys["key"] == "k"  # type: ignore[attr-defined]
    assert lines[0].keys["rid"] == "test-1"  # type: ignore[attr-defined]


async def test_conflict_is_tried_again_at_once_but_not_for_ever() -> None:
    bench = Bench([Conflict("x")] * 12, Limits(workers=1, first_delay=1, conflicts=8))
    bench.controller.wake("k", "test")
    await bench.run(1000)
    assert bench.moments[:9] == [0.0] * 9
    assert bench.moments[9:] == [1, 3, 7, 15]
    assert bench.count("conflict") == 8
    assert bench.count("error") == 4


async def test_too_many_requests_waits_as_told() -> None:
    bench = Bench([TooManyRequests("busy", retry_after=7), TooManyRequests("busy")], Limits(throttled=3))
    bench.controller.wake("k", "test")
    await bench.run(1000)
    assert bench.moments == [0, 7, 10]
    assert bench.count("throttled") == 2


@pytest.mark.parametrize(
    "refusal",
    [
        Forbidden("exceeded quota"),
        BadRequest("a webhook denied the request"),
        Invalid("spec is wrong", causes=(Cause("FieldValueInvalid", "no", "spec"),)),
    ],
)
async def test_a_refusal_is_tried_again_from_a_second_on(refusal: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """A quota or a policy does not change within milliseconds, and a traceback would tell nothing about it."""
    bench = Bench([refusal] * 4)
    bench.controller.wake("k", "test")
    with caplog.at_level(logging.WARNING):
        await bench.run(20)
    assert bench.moments == [0, 1, 3, 7, 15]
    assert bench.count("error") == 4
    assert [(record.levelname, record.exc_info) for record in caplog.records] == [("WARNING", None)] * 4


async def test_what_a_namespace_that_ends_refuses_is_not_tried_again() -> None:
    ending = Forbidden("it is being terminated", causes=(Cause("NamespaceTerminating", "namespace x"),))
    bench = Bench([ending])
    bench.controller.wake("k", "test")
    await bench.run(5000)
    assert bench.moments == [0]
    assert bench.count("terminal") == 1


async def test_calls_have_the_priority_of_their_key() -> None:
    """Also in tasks that a reconcile starts; and whoever comes next is not in it by mistake."""
    lanes: list[tuple[Priority, Priority]] = []

    async def look() -> Done:
        lanes.append((current_priority(), await asyncio.create_task(_lane())))
        return Done()

    bench = Bench([look] * 3, Limits(workers=1))
    for key, priority in (("a", Priority.BACKGROUND), ("b", Priority.URGENT), ("c", Priority.BACKGROUND)):
        bench.controller.wake(key, "test", priority)
    await bench.run(10)
    assert [key for key, _ in bench.ran] == ["b", "a", "c"]
    assert lanes == [(Priority.URGENT,) * 2, (Priority.BACKGROUND,) * 2, (Priority.BACKGROUND,) * 2]
    assert current_priority() is Priority.URGENT


async def _lane() -> Priority:
    return current_priority()


async def test_unobserved_waits_for_the_revision_and_for_nothing_else() -> None:
    cache: Cache[ConfigMap] = Cache(CONFIG_MAPS)
    bench = Bench([Unobserved("k", Revision(5), cache)])
    bench.controller.wake("k", "test")

    async def meanwhile() -> None:
        await asyncio.sleep(4)
        cache.replace([], Revision(4))
        await asyncio.sleep(4)
        cache.apply(Event(EventType.BOOKMARK, None, Revision(6)))

    await bench.run(1000, meanwhile)
    assert bench.moments == [0, 8], "no timed look in between, and none later"
    assert bench.count("unobserved") == 1


async def test_a_revision_that_never_comes_raises_an_alarm() -> None:
    cache: Cache[ConfigMap] = Cache(CONFIG_MAPS)
    bench = Bench([Unobserved("k", Revision(5), cache)], Limits(alarm=30))
    bench.controller.wake("k", "test")
    await bench.run(1000)
    assert bench.moments == [0, 30]


async def test_its_own_time_limit_is_a_failure() -> None:
    async def hang() -> Done:
        await asyncio.Event().wait()
        return Done()

    bench = Bench([hang, TimeoutError("somebody else's")], Limits(timeout=60, first_delay=1))
    bench.controller.wake("k", "test")
    await bench.run(1000)
    assert bench.moments == [0, 61, 63]
    assert bench.count("timeout") == 1
    assert bench.count("error") == 1


async def test_a_cancellation_from_inside_does_not_end_the_worker() -> None:
    async def awaits_something_cancelled() -> Done:
        future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    bench = Bench([awaits_something_cancelled], Limits(workers=1, first_delay=1))
    bench.controller.wake("k", "test")
    await bench.run(1000)
    assert bench.moments == [0, 1]
    assert bench.count("error") == 1


async def test_stop_finishes_what_waits_and_what_runs() -> None:
    async def slow() -> Done:
        await asyncio.sleep(10)
        return Done(again_after=1)

    bench = Bench([slow, slow, slow], Limits(workers=1))
    for key in "abc":
        bench.controller.wake(key, "test")
    await bench.run(5)
    assert [key for key, _ in bench.ran] == ["a", "b", "c"]
    assert bench.clock.monotonic() == 30


def a_map(name: str, revision: int, owner: str, **data: str) -> ConfigMap:
    return ConfigMap(
        metadata=Metadata(
            namespace="ns", name=name, uid=Uid(name), resource_version=str(revision), labels={"owner": owner}
        ),
        data=data,
    )


async def test_a_trigger_wakes_only_for_what_is_read_and_wakes_old_and_new_owners() -> None:
    bench = Bench([], Limits(workers=1))
    cache: Cache[ConfigMap] = Cache(CONFIG_MAPS)
    bench.controller.on(
        cache,
        lambda obj: [obj.metadata.labels["owner"]],
        reduce=lambda obj: None if "ignore" in obj.data else (obj.metadata.labels["owner"], obj.data.get("read")),
    )

    async def step(obj: ConfigMap, type_: EventType = EventType.MODIFIED) -> list[str]:
        bench.ran.clear()
        cache.apply(Event(type_, obj, obj.metadata.revision))
        await asyncio.sleep(1)
        return [key for key, _ in bench.ran]

    async def steps() -> None:
        assert await step(a_map("a", 1, "p", read="1"), EventType.ADDED) == ["p"]
        assert await step(a_map("a", 2, "p", read="1", unread="1")) == []
        assert await step(a_map("a", 3, "p", read="2", unread="1")) == ["p"]
        assert await step(a_map("a", 4, "q", read="2")) == ["p", "q"], "the former owner learns of its loss"
        assert await step(a_map("a", 5, "q", ignore="")) == ["q"], "it stops to matter"
        assert await step(a_map("a", 6, "q", ignore="", read="7")) == []
        assert await step(a_map("a", 7, "q", ignore=""), EventType.DELETED) == []
        assert await step(a_map("b", 8, "q", ignore=""), EventType.ADDED) == []

    await bench.run(0, steps)


async def test_priority_comes_from_the_trigger_and_stays_with_the_key() -> None:
    bench = Bench([TooManyRequests("busy", retry_after=1)], Limits(workers=1))
    cache: Cache[ConfigMap] = Cache(CONFIG_MAPS)
    bench.controller.on(
        cache,
        lambda obj: [obj.metadata.name],
        reduce=lambda obj: obj.data,
        priority=lambda obj: Priority.URGENT if obj.metadata.labels["owner"] == "claim" else Priority.BACKGROUND,
    )
    cache.replace(
        [a_map("p1", 1, "pool"), a_map("p2", 2, "pool"), a_map("c1", 3, "claim"), a_map("c2", 4, "claim")], Revision(4)
    )
    await bench.run(10)
    assert [key for key, _ in bench.ran] == ["c1", "c2", "p1", "p2", "c1"]


async def test_the_story_tells_cause_plan_and_end() -> None:
    bench = Bench([TooManyRequests("busy", retry_after=5)])
    bench.controller.wake("k", "claim")
    bench.controller.wake("k", "pool")
    bench.controller.wake("k", "claim")
    await bench.run(100)
    first, second = bench.story.of(("test", "k"))
    assert (first.trigger, first.plan, first.rid) == ("claim+pool", "plan 1", "test-1")
    assert first.outcome == "throttled: TooManyRequests: busy"
    assert (second.trigger, second.plan, second.outcome) == ("throttled", "plan 2", "done")
    assert second.when == START + timedelta(seconds=5)


async def test_every_outcome_is_counted_from_zero() -> None:
    bench = Bench([])
    samples = {
        sample.labels["outcome"]: sample.value
        for metric in bench.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "sandpool_reconciles_total"
    }
    assert samples == dict.fromkeys(OUTCOMES, 0.0)
    assert set(OUTCOMES) == {arm.value for arm in Arm}


async def test_queue_depth_is_measured_when_asked() -> None:
    bench = Bench([])
    for key in "abc":
        bench.controller.wake(key, "test")
    assert bench.metrics.registry.get_sample_value("sandpool_queue_depth", {"controller": "test"}) == 3


@pytest.mark.parametrize(
    ("errors", "arm"),
    [
        ([Conflict("x")], Arm.CONFLICT),
        ([Conflict("x"), Terminal("R", "m")], Arm.CONFLICT),
        ([Terminal("R", "m"), Terminal("R", "m")], Arm.TERMINAL),
        ([Conflict("x"), TooManyRequests("x")], Arm.THROTTLED),
        ([Conflict("x"), ZeroDivisionError(), OutOfTime()], Arm.ERROR),
    ],
)
async def test_of_several_errors_the_gravest_decides(errors: list[Exception], arm: Arm) -> None:
    assert classify(ExceptionGroup("several", [ExceptionGroup("inner", errors)]))[0] is arm


async def test_the_same_key_is_never_reconciled_twice_at_once() -> None:
    running: set[str] = set()
    overlaps: list[str] = []
    runs = 0

    async def reconcile(key: str) -> Done:
        nonlocal runs
        if key in running:
            overlaps.append(key)
        running.add(key)
        await asyncio.sleep(0.1)
        running.discard(key)
        runs += 1
        return Done()

    controller: Controller[str] = Controller(
        "test", reconcile, LoopClock(START), Metrics(), ReconcileHistory(), Limits(workers=16)
    )

    async def storm() -> None:
        for n in range(200):
            controller.wake(f"k{n % 5}", "storm")
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        group.create_task(controller.run())
        await storm()
        controller.stop()
    assert overlaps == []
    assert 20 <= runs <= 110


def test_a_key_is_printed_as_users_write_it() -> None:
    assert str(Key("ns", "a")) == "ns/a"


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_reconcile_that_turns_its_cancellation_into_something_else_still_ends_the_worker(
    swallows: bool,
) -> None:
    """A TaskGroup whose child fails while it is cancelled raises the child's error and forgets the cancellation."""

    async def reconcile(key: str) -> Done:
        async def child() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise NotFound("gone meanwhile")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
        except* NotFound:
            if not swallows:
                raise
        return Done()

    controller: Controller[str] = Controller("test", reconcile, LoopClock(START), Metrics(), ReconcileHistory())
    controller.wake("k", "test")
    running = asyncio.create_task(controller.run())
    await asyncio.sleep(1)
    running.cancel()
    _, hanging = await asyncio.wait([running], timeout=60)
    assert not hanging
    assert running.cancelled()
    await controller.queue.drained()


async def test_a_key_that_wakes_itself_lets_others_have_their_turn() -> None:
    bench = Bench([Done(again_after=0.0)] * 1000)
    seen: list[int] = []

    async def work() -> None:
        bench.controller.wake("a", "test")
        for _ in range(5):
            await asyncio.sleep(0)
            seen.append(len(bench.ran))

    await bench.run(0.1, work)
    assert seen[-1] < 10
    assert len(bench.ran) == 1001


async def test_what_is_left_for_afterwards_is_the_same_reconcile_in_the_background() -> None:
    lanes: list[Priority] = []

    async def first() -> Done:
        lanes.append(current_priority())
        return Done(afterwards=True)

    async def rest() -> Done:
        lanes.append(current_priority())
        return Done()

    bench = Bench([first, rest])
    bench.controller.wake("a", "user")
    await bench.run(1)
    assert [key for key, _ in bench.ran] == ["a", "a"]
    assert lanes == [Priority.URGENT, Priority.BACKGROUND]
    (entry,) = bench.story.of(("test", "a"))
    assert (entry.trigger, entry.plan, entry.outcome) == ("user", "plan 1; plan 2", "done")
    assert (
        bench.metrics.registry.get_sample_value("sandpool_reconciles_total", {"controller": "test", "outcome": "done"})
        == 1
    )


async def test_what_is_left_waits_until_others_are_done_and_joins_what_comes_meanwhile() -> None:
    bench = Bench([Done(afterwards=True)], Limits(workers=1))
    bench.controller.share(urgent := UrgentWork())
    urgent.began()
    bench.controller.wake("a", "user")
    asyncio.get_running_loop().call_later(0.5, bench.controller.wake, "a", "news")
    asyncio.get_running_loop().call_later(0.7, urgent.ended)
    await bench.run(1)
    assert [(key, round(at - bench.ran[0][1], 3)) for key, at in bench.ran] == [("a", 0.0), ("a", 0.5)]
    (entry,) = bench.story.of(("test", "a"))
    assert entry.trigger == "user+news"


async def test_a_reconcile_that_does_nothing_takes_few_calls() -> None:
    """What every reconcile pays, whatever it does: Python functions from the wake to the story."""
    bench = Bench([])
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call" and "/src/sandpool/" in frame.f_code.co_filename

    async def work() -> None:
        await asyncio.sleep(1)
        for key in range(200):
            bench.controller.wake(str(key), "test")
        sys.setprofile(count)
        await asyncio.sleep(1)
        sys.setprofile(None)

    await bench.run(1, work)
    assert len(bench.ran) == 200
    assert calls / 200 < 30


async def test_a_failure_leaves_no_circle_behind() -> None:
    """Else each would wait for the collector of cycles, with all that its frames hold."""
    failures: list[weakref.ref[Exception]] = []

    class Mine(Conflict):
        def __init__(self) -> None:
            super().__init__("somebody was faster")
            failures.append(weakref.ref(self))

    async def fail() -> Done:
        raise Mine

    bench = Bench([fail, fail])
    bench.controller.wake("k", "test")
    gc.disable()
    try:
        await bench.run(5)
        assert [failure() for failure in failures] == [None, None]
    finally:
        gc.enable()
