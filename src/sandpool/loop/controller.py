"""A controller: keys in, reconciles out. What a reconcile does is its author's; what its end leads to is decided here.

Triggers turn steps of a cache into keys. Each trigger reduces an object to what the controller reads of it: equal before
and after, nobody wakes up. A reconcile gets a key and nothing else, returns Done or raises, and never catches; each end is
one queue action and one metric label (loop/outcome.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from types import coroutine
from typing import Any, Generic, TypeVar

from sandpool.base.backoff import Backoff
from sandpool.base.clock import Clock
from sandpool.base.deadline import Deadlines, Limit
from sandpool.kube.lanes import Lane, take_lane
from sandpool.loop.cache import Cache
from sandpool.loop.errors import Unobserved
from sandpool.loop.outage import Outage
from sandpool.loop.outcome import Arm, Done, OutOfTime, classify, refuses, unavailable
from sandpool.loop.queue import Item, Priority, Queue
from sandpool.loop.rush import Rush
from sandpool.model.metadata import Key, Object
from sandpool.telemetry.log import bind, logger
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import Entry, Notes, Story, take_notes
from sandpool.telemetry.trace import NullTracer, Tracer

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Object)

log = logger(__name__)

_JUMP = 1.0  # seconds; less is what clocks do when they are kept in step


@dataclass(frozen=True, slots=True)
class Limits:
    workers: int = 8
    timeout: float = 60.0  # of one reconcile
    first_delay: float = 0.005  # after the first failure of a key, doubling
    longest_delay: float = 1000.0
    longest_outage: float = 15.0  # between two tries while the server cannot be reached, or is broken
    first_refusal: float = 1.0  # after the first refusal of a key, doubling: a quota does not change at once,
    longest_refusal: float = 60.0  # but when it does, nobody tells
    throttled: float = 1.0  # when a server is too busy and does not say for how long
    conflicts: int = 8  # so many in a row are answered at once, further ones as failures
    alarm: float = 30.0  # a revision that does not come for so long is not waited for
    clock_check: float = 30.0  # between two looks whether the wall clock was set, or the machine slept


class _Run:
    """One reconcile, as its story will tell it."""

    __slots__ = ("causes", "plan", "rid", "took")

    def __init__(self, rid: str, causes: dict[str, None]) -> None:
        self.rid = rid
        self.causes = causes
        self.plan = Notes()
        self.took = 0.0  # seconds


def _namespace(key: Hashable) -> str:
    """Whose key it is: namespaces do not wait for each other's keys."""
    return key.namespace if isinstance(key, Key) else ""


class Controller(Generic[K]):
    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Done]],
        clock: Clock,
        metrics: Metrics,
        story: Story,
        limits: Limits = Limits(),
        tracer: Tracer = NullTracer(),
    ) -> None:
        self.name = name
        self.at_work = False  # between the beginning of `run` and `stop`
        self.outage = Outage(clock.monotonic)  # or one that is shared with others who call the same server
        self.queue: Queue[K] = Queue(clock, party=_namespace)
        self._tracer = None if isinstance(tracer, NullTracer) else tracer
        self._reconcile = reconcile if self._tracer is None else _traced(self._tracer, name, reconcile)
        self._clock = clock
        self._story = story
        self._limits = limits
        self._deadlines = Deadlines(clock, limits.timeout)
        self._backoff: Backoff[K] = Backoff(limits.first_delay, limits.longest_delay)
        self._refusals: Backoff[K] = Backoff(limits.first_refusal, limits.longest_refusal)
        self._conflicts: dict[K, int] = {}
        self._troubled: set[K] = set()  # keys of which any of the three may remember something
        self._causes: dict[K, dict[str, None]] = {}  # what woke a key that waits, in order, each once
        self._later: dict[K, str] = {}  # why a delayed key is delayed
        self._moments: dict[K, tuple[datetime, Priority]] = {}  # which keys are to be looked at when, by the wall clock
        self._rids = count(1)
        self._open: dict[K, _Run] = {}  # reconciles that have left something to be done afterwards
        metrics.declare_controller(name)
        metrics.queue_depth.labels(name).set_function(lambda: len(self.queue))
        self._counts = {arm: metrics.reconciles.labels(name, arm.value) for arm in Arm}
        self._seconds = metrics.reconcile_seconds.labels(name)
        self._waits = metrics.queue_seconds.labels(name)
        self._busy = 0
        metrics.busy_workers.labels(name).set_function(lambda: self._busy)

    def on(
        self,
        cache: Cache[T],
        keys: Callable[[T], Iterable[K]],
        *,
        reduce: Callable[[T], object],
        priority: Priority | Callable[[T], Priority] = Priority.FIRST,
        cause: str = "",
    ) -> None:
        """Wakes `keys(object)` when `reduce(object)` changes; None stands for "does not concern us", like absence.
        Both the object before and the one after are asked for keys, so that a former owner learns of its loss."""
        why = cause or cache.resource.kind

        def step(old: T | None, new: T | None) -> None:
            before = None if old is None else reduce(old)
            after = None if new is None else reduce(new)
            if before == after:
                return
            for obj in (old, new):
                if obj is not None:
                    urgency = priority if isinstance(priority, Priority) else priority(obj)
                    for key in keys(obj):
                        self.wake(key, why, urgency)

        cache.subscribe(step)

    def wake(self, key: K, cause: str, priority: Priority = Priority.FIRST, *, after: float = 0.0) -> None:
        """Wants the key reconciled; `cause` is for its story."""
        if after > 0:
            self._later[key] = cause
        else:
            self._causes.setdefault(key, {})[cause] = None
        self.queue.add(key, priority, after=after)

    def tell_of(self, key: K, cause: str, plan: str, took: float) -> None:
        """What was done for a key without a reconcile, as its story and its trace should show it."""
        entry = Entry(self._clock.now(), f"{self.name}-{next(self._rids):x}", cause, plan, "done", took)
        self._story.record((self.name, key), entry)
        if self._tracer is not None:
            with self._tracer.span("reconcile", controller=self.name, key=key, plan=plan):
                pass

    def share(self, rush: Rush) -> None:
        """What nobody waits for rests while other controllers that share the rush have something urgent to do."""
        self.queue.share(rush)

    async def run(self) -> None:
        """Works until `stop` is called and all that was waiting is done."""
        self.at_work = True
        try:
            async with asyncio.TaskGroup() as group:
                minding = group.create_task(self._mind_the_clock(), name=f"{self.name}-clock")
                workers = [
                    group.create_task(self._work(), name=f"{self.name}-{number}")
                    for number in range(self._limits.workers)
                ]
                await asyncio.wait(workers)
                minding.cancel()
        finally:
            self.at_work = False
            self._deadlines.close()

    def stop(self) -> None:
        self.at_work = False
        self.queue.shut_down()

    async def _mind_the_clock(self) -> None:
        """Timers follow a clock that stands still while a machine sleeps, and that nobody can set. Moments do not."""
        clock = self._clock
        while True:
            now, at = clock.now(), clock.monotonic()
            await clock.sleep(self._limits.clock_check)
            jumped = (clock.now() - now).total_seconds() - (clock.monotonic() - at)
            if jumped > _JUMP:
                log.info("clock jumped", controller=self.name, seconds=jumped)
                for key, (moment, priority) in tuple(self._moments.items()):
                    self.wake(key, "clock", priority, after=Done(again_at=moment).delay(clock.now()) or 0.0)

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        queue, limit = self.queue, self._deadlines.limit()
        while (item := queue.take_nowait() or await queue.take()) is not None:
            self._busy += 1
            try:
                await self._handle(item, limit, task)
            finally:
                self._busy -= 1
            if task.cancelling():  # and the reconcile made something else of it: nobody will tell us a second time
                raise asyncio.CancelledError
            # Neither a queue that is not empty nor a reconcile that only looks gives way: a key that wakes itself would keep
            # watches, timers and the lease from ever having their turn.
            if len(queue):
                await _give_way()

    async def _handle(self, item: Item[K], limit: Limit, task: asyncio.Task[Any]) -> None:
        """One reconcile. Its end is a value; only our own cancellation passes through: it means that we are to stop."""
        key, priority, waited = item
        run = self._begun(key)
        self._waits.observe(waited)
        bind({"controller": self.name, "key": key, "rid": run.rid})
        take_lane(Lane.REFILL if priority is Priority.SECOND else Lane.CLAIMS)
        take_notes(run.plan)
        began = self._clock.monotonic()
        outcome: Done | BaseException
        try:
            with limit:
                outcome = await self._reconcile(key)
        except TimeoutError as error:
            outcome = OutOfTime(f"no end after {self._limits.timeout} s") if limit.expired else error
        except asyncio.CancelledError as error:
            if task.cancelling():
                self.queue.done(key)
                raise
            outcome = error  # something inside was cancelled, not we: a failure like any other
        except Exception as error:
            outcome = error
        run.took += self._clock.monotonic() - began
        if not isinstance(outcome, Done):
            arm, text = self._failed(item, outcome)
            del outcome  # it refers to this frame: nothing must have to look for circles
        elif outcome.afterwards:
            self._open[key] = run
            self.queue.done(key, settled=True)
            self.queue.add(key, Priority.SECOND)
            return
        else:
            arm, text = self._settled(item, outcome)
        self._tell(key, run, arm, text)

    def _begun(self, key: K) -> _Run:
        """A new reconcile, or what an earlier one left to be done afterwards."""
        later = self._later.pop(key, "") if self._later else ""
        causes = self._causes.pop(key, None)
        run = self._open.pop(key, None) if self._open else None
        if run is None:
            return _Run(f"{self.name}-{next(self._rids):x}", causes or {later: None})
        run.causes.update(causes or {})
        return run

    def _tell(self, key: K, run: _Run, arm: Arm, text: str) -> None:
        self._counts[arm].inc()
        self._seconds.observe(run.took)
        entry = Entry(self._clock.now(), run.rid, "+".join(run.causes), "; ".join(run.plan), text, run.took)
        self._story.record((self.name, key), entry)

    def _settled(self, item: Item[K], done: Done) -> tuple[Arm, str]:
        """It did all there was to do. The answer is for metric and story."""
        key, priority, _ = item
        if key in self._troubled:
            self._forget(key)
        if key in self._moments:
            del self._moments[key]
        self.queue.done(key, settled=True)
        if done.again_at is None and done.again_after is None:
            return Arm.DONE, "done"
        if done.unhurried:
            priority = Priority.SECOND
        if done.again_at is not None:
            self._moments[key] = (done.again_at, priority)
        delay = done.delay(self._clock.now()) or 0.0
        self.wake(key, "again", priority, after=delay)
        return Arm.AGAIN, f"again in {delay:.3f} s"

    def _failed(self, item: Item[K], outcome: BaseException) -> tuple[Arm, str]:
        """The switch that everything here hangs on: one arm, one queue action. The answer is for metric and story."""
        key, priority, _ = item
        self._troubled.add(key)
        arm, error = classify(outcome)
        self.queue.done(key)
        if arm is Arm.CONFLICT and not self._patient(key):
            arm = Arm.ERROR
        match arm:
            case Arm.UNOBSERVED:
                assert isinstance(error, Unobserved)
                error.cache.when_reached(error.revision, lambda: self.wake(key, "observed", priority))
                self.wake(key, "overdue", priority, after=self._limits.alarm)
            case Arm.CONFLICT:
                self.wake(key, "conflict", priority)
            case Arm.THROTTLED:
                self.wake(
                    key, "throttled", priority, after=getattr(error, "retry_after", None) or self._limits.throttled
                )
            case Arm.TERMINAL:
                self._forget(key)
                log.info("reconcile cannot succeed", error=error)
            case _ if refuses(error):
                delay = self._refusals.next(key)
                self.wake(key, "refused", priority, after=delay)
                log.warning("reconcile refused", error=error, again_in=delay)
            case _:
                self._retried(key, priority, outcome)
        return arm, f"{arm.value}: {type(error).__name__}: {error}"

    def _retried(self, key: K, priority: Priority, outcome: BaseException) -> None:
        """Again after a delay that grows. That the server is away fails all keys alike: that is told once, for all of them."""
        delay, away = self._backoff.next(key), unavailable(outcome)
        if away is not None:
            delay = min(delay, self._limits.longest_outage)
            self.outage.failed(away)
            log.debug("reconcile cut off", error=away, again_in=delay)
        else:
            log.error("reconcile failed", exc=outcome, again_in=delay, failures=self._backoff.failures(key))
        self.wake(key, "retry", priority, after=delay)

    def _patient(self, key: K) -> bool:
        """Conflicts are answered at once, but not for ever: two writers must not spin against each other."""
        conflicts = self._conflicts[key] = self._conflicts.get(key, 0) + 1
        return conflicts <= self._limits.conflicts

    def _forget(self, key: K) -> None:
        self._troubled.discard(key)
        self._backoff.forget(key)
        self._refusals.forget(key)
        self._conflicts.pop(key, None)


def _traced(
    tracer: Tracer, name: str, reconcile: Callable[[K], Awaitable[Done]]
) -> Callable[[K], Coroutine[Any, Any, Done]]:
    async def traced(key: K) -> Done:
        with tracer.span("reconcile", controller=name, key=key):  # which sees how it ends
            return await reconcile(key)

    return traced


@coroutine
def _give_way() -> Generator[None]:
    """As `asyncio.sleep(0)`, which is two calls more."""
    yield
