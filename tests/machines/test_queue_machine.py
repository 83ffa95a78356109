"""The work queue against a model that is too simple to be wrong."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sandpool.kube.priority import Priority
from sandpool.loop.queue import Queue
from support.clocks.manual_clock import ManualClock

KEYS = st.sampled_from("abcde")
QUEUED = (Priority.URGENT, Priority.BACKGROUND)  # the two that a work queue tells apart
PRIORITIES = st.sampled_from(QUEUED)
PATIENCE = 2.0


class QueueMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.clock = ManualClock()
        self.queue: Queue[str] = Queue(
            self.clock, patience=PATIENCE, flow=lambda key: "first" if key < "c" else "second"
        )
        self.waiting: dict[str, tuple[Priority, float]] = {}  # and since when
        self.processing: dict[str, tuple[float, Priority] | None] = {}  # and the delay set aside
        self.dirty: dict[str, Priority] = {}
        self.delayed: dict[str, tuple[float, Priority]] = {}
        self.last = Priority.BACKGROUND
        self.closed = False

    def model_add(self, key: str, priority: Priority, now: float) -> None:
        if key in self.processing:
            self.dirty[key] = min(priority, self.dirty.get(key, priority))
        else:
            known, since = self.waiting.get(key, (priority, now))
            if key not in self.waiting or priority < known:
                self.waiting.pop(key, None)
                self.waiting[key] = (min(known, priority), since)

    def model_delay(self, key: str, deadline: float, priority: Priority) -> None:
        at, lane = self.delayed.get(key, (deadline, priority))
        self.delayed[key] = (min(at, deadline), min(lane, priority))

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: Priority) -> None:
        self.queue.add(key, priority)
        if not self.closed:
            self.model_add(key, priority, self.clock.monotonic())

    @rule(key=KEYS, priority=PRIORITIES, after=st.sampled_from([0.25, 1.0, 1.5, 4.0]))
    def add_later(self, key: str, priority: Priority, after: float) -> None:
        self.queue.add(key, priority, after=after)
        if not self.closed:
            self.model_delay(key, self.clock.monotonic() + after, priority)

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.25, 3.0]))
    def pass_time(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        self.clock.advance(seconds)
        while due := sorted((at, key) for key, (at, _) in self.delayed.items() if at <= end):
            at, key = due[0]
            self.model_add(key, self.delayed.pop(key)[1], at)

    @rule()
    def take(self) -> None:
        item = self.queue.take_nowait()
        lanes = {p: [key for key, (lane, _) in self.waiting.items() if lane is p] for p in QUEUED}
        if item is None:
            assert not self.waiting
            return
        assert item.key not in self.processing, "with two workers at once"
        expected = Priority.URGENT if lanes[Priority.URGENT] else Priority.BACKGROUND
        if all(lanes.values()) and self.last is Priority.URGENT:
            since = self.waiting[lanes[Priority.BACKGROUND][0]][1]
            if self.clock.monotonic() - since >= PATIENCE:
                expected = Priority.BACKGROUND
        assert item.key in lanes[expected]
        assert item.priority is expected
        assert item.waited == self.clock.monotonic() - self.waiting[item.key][1]
        del self.waiting[item.key]
        self.last = expected
        self.processing[item.key] = self.delayed.pop(item.key, None)

    @rule(data=st.data(), settled=st.booleans())
    def done(self, data: st.DataObject, settled: bool) -> None:
        if not self.processing:
            return
        key = data.draw(st.sampled_from(sorted(self.processing)))
        self.queue.done(key, settled=settled)
        before = self.processing.pop(key)
        if before is not None and not settled and not self.closed:
            self.model_delay(key, *before)
        if key in self.dirty:
            self.model_add(key, self.dirty.pop(key), self.clock.monotonic())
        if (due := self.delayed.get(key)) and due[0] <= self.clock.monotonic():
            # A delay that passed while it was set aside fires as soon as the clock is looked at.
            self.clock.advance(0)
            self.model_add(key, self.delayed.pop(key)[1], self.clock.monotonic())

    @rule()
    def shut_down(self) -> None:
        if len(self.processing) >= 3:  # late, or little else would happen
            self.queue.shut_down()
            self.closed = True
            self.delayed.clear()

    @invariant()
    def same_depth(self) -> None:
        assert len(self.queue) == len(self.waiting)

    def teardown(self) -> None:
        """Nothing is ever lost: whatever was wanted is handed out in the end, exactly once."""
        if not hasattr(self, "queue"):
            return
        for key in sorted(self.processing):
            self.done_all(key)
        self.pass_time(10.0)
        while self.waiting:
            before = len(self.waiting)
            self.take()
            assert len(self.waiting) == before - 1
        assert self.queue.take_nowait() is None

    def done_all(self, key: str) -> None:
        self.queue.done(key, settled=True)
        self.processing.pop(key)
        if key in self.dirty:
            self.model_add(key, self.dirty.pop(key), self.clock.monotonic())


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.long
class TestQueueLong(QueueMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=1500, stateful_step_count=80, deadline=None)
