"""A controller: takes keys from its work queue, runs reconciles, and decides what follows from how each one ends.

Triggers turn changes of a cache into keys. Each trigger reduces an object to what the controller reads of it: if that is equal before
and after, no key is woken. A reconcile gets a key and nothing else, returns Done or raises, and never catches; each end is
one queue action and one metric label (loop/outcome.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Hashable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import count
from types import coroutine
from typing import Any, Generic, TypeVar

from sandpool.base.backoff import Backoff
from sandpool.base.clock import Clock
from sandpool.base.deadline import Deadlines, Limit
from sandpool.kube.priority import Priority, UrgentWork, set_priority
from sandpool.loop.cache import Cache
from sandpool.loop.errors import Unobserved
from sandpool.loop.outage import Outage
from sandpool.loop.outcome import Arm, Done, OutOfTime, classify, refuses, unavailable
from sandpool.loop.portions import PORTION, in_portions
from sandpool.loop.queue import Item, Queue
from sandpool.model.metadata import Key, Object
from sandpool.telemetry.log import bind, logger
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import Entry, Notes, ReconcileHistory, take_notes
from sandpool.telemetry.trace import NullTracer, Tracer

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Object)

log = logger(__name__)

_JUMP = 1.0  # seconds; smaller jumps are normal clock corrections


@dataclass(frozen=True, slots=True)
class Limits:
    """Workers, time limits and delays of one controller."""

    workers: int = 8
    shared: bool = False  # whether namespaces share the workers, so that slow work for one leaves some to others
    timeout: float = 60.0  # of one reconcile
    first_delay: float = 0.005  # after the first failure of a key, doubling
    longest_delay: float = 1000.0
    longest_outage: float = 15.0  # between two tries while the server cannot be reached, or is broken
    first_refusal: float = 1.0  # after the first refusal of a key, doubling: a quota does not change at once,
    longest_refusal: float = 60.0  # but no event says when it does
    throttled: float = 1.0  # when a server is too busy and does not say for how long
    conflicts: int = 8  # this many in a row are retried at once, further ones count as failures
    alarm: float = 30.0  # after this long without the awaited revision, reconcile anyway
    clock_check: float = 30.0  # between two checks whether the wall clock was set or the machine slept


class _Run:
    """One reconcile, as its history will show it."""

    __slots__ = ("causes", "plan", "rid", "took")

    def __init__(self, rid: str, causes: dict[str, None]) -> None:
        self.rid = rid
        self.causes = causes
        self.plan = Notes()
        self.took = 0.0  # seconds


def _namespace(key: Hashable) -> str:
    """The flow of a key: namespaces take turns."""
    return key.namespace if isinstance(key, Key) else ""


class Controller(Generic[K]):
    """Runs reconciles for the keys of one work queue. Call `on` to subscribe to caches, then `run`."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Done]],
        clock: Clock,
        metrics: Metrics,
        history: ReconcileHistory,
        limits: Limits = Limits(),
        tracer: Tracer = NullTracer(),
    ) -> None:
        self.name = name
        self.at_work = False  # between the beginning of `run` and `stop`
        self.outage = Outage(clock.monotonic)  # may be replaced by one that is shared by all callers of a server
        self.queue: Queue[K] = Queue(clock, flow=_namespace, workers=limits.workers if limits.shared else None)
        self._tracer = None if isinstance(tracer, NullTracer) else tracer
        self._reconcile = reconcile if self._tracer is None else _traced(self._tracer, name, reconcile)
        self._clock = clock
        self._history = history
        self._limits = limits
        self._deadlines = Deadlines(clock, limits.timeout)
        self._backoff: Backoff[K] = Backoff(limits.first_delay, limits.longest_delay)
        self._refusals: Backoff[K] = Backoff(limits.first_refusal, limits.longest_refusal)
        self._conflicts: dict[K, int] = {}
        self._troubled: set[K] = set()  # keys that any of the three may have an entry of
        self._causes: dict[K, dict[str, None]] = {}  # what woke a key that waits, in order, each once
        self._later: dict[K, str] = {}  # why a delayed key is delayed
        self._moments: dict[K, tuple[datetime, Priority]] = {}  # when keys are due, by the wall clock
        self._rids = count(1)
        self._open: dict[K, _Run] = {}  # reconciles that left work for later (`Done.afterwards`)
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
        keys: Callable[[T], Collection[K]],
        *,
        reduce: Callable[[T], object],
        priority: Priority | Callable[[T], Priority] = Priority.URGENT,
        cause: str = "",
    ) -> None:
        """Wakes `keys(object)` when `reduce(object)` changes; None stands for "does not concern us", like absence.
        Keys are taken from both the old and the new object, so that a former owner is woken, too."""
        why = cause or cache.resource.kind

        def step(old: T | None, new: T | None) -> None:
            before = None if old is None else reduce(old)
            after = None if new is None else reduce(new)
            if before == after:
                return
            for obj in (old, new):
                if obj is not None:
                    urgency = priority if isinstance(priority, Priority) else priority(obj)
                    found = keys(obj)
                    if len(found) > PORTION:
                        in_portions(found, partial(self.wake, cause=why, priority=urgency))
                        continue
                    for key in found:
                        self.wake(key, why, urgency)

        cache.subscribe(step)

    def wake(self, key: K, cause: str, priority: Priority = Priority.URGENT, *, after: float = 0.0) -> None:
        """Reconcile the key; `cause` is for its history."""
        if after > 0:
            self._later[key] = cause
        else:
            self._causes.setdefault(key, {})[cause] = None
        self.queue.add(key, priority, after=after)

    def record(self, key: K, cause: str, plan: str, took: float) -> None:
        """Records what was done for a key without a reconcile, in its history and its trace."""
        entry = Entry(self._clock.now(), f"{self.name}-{next(self._rids):x}", cause, plan, "done", took)
        self._history.record((self.name, key), entry)
        if self._tracer is not None:
            with self._tracer.span("reconcile", controller=self.name, key=key, plan=plan):
                pass

    def share(self, urgent: UrgentWork) -> None:
        """Background keys wait while any controller that shares this has urgent ones."""
        self.queue.share(urgent)

    async def run(self) -> None:
        """Runs workers until `stop` is called and all waiting keys are done."""
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
        """Wakes delayed keys again when the wall clock jumped. Timers follow the monotonic clock, which stands still while a machine sleeps."""
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
            if task.cancelling():  # the reconcile swallowed our cancellation, which is not delivered twice
                raise asyncio.CancelledError
            # Neither taking a key nor a reconcile without I/O yields to the event loop: a key that wakes itself would starve
            # watches, timers and the lease.
            if len(queue):
                await _give_way()

    async def _handle(self, item: Item[K], limit: Limit, task: asyncio.Task[Any]) -> None:
        """Runs one reconcile and acts on its outcome. Only the cancellation of this worker passes through."""
        key, priority, waited = item
        run = self._begun(key)
        self._waits.observe(waited)
        bind({"controller": self.name, "key": key, "rid": run.rid})
        set_priority(priority)
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
            outcome = error  # something inside was cancelled, not this worker: a failure like any other
        except Exception as error:
            outcome = error
        run.took += self._clock.monotonic() - began
        if not isinstance(outcome, Done):
            arm, text = self._failed(item, outcome)
            del outcome  # its traceback refers to this frame: avoid a reference cycle
        elif outcome.afterwards:
            self._open[key] = run
            self.queue.done(key, settled=True)
            self.queue.add(key, Priority.BACKGROUND)
            return
        else:
            arm, text = self._settled(item, outcome)
        self._record(key, run, arm, text)

    def _begun(self, key: K) -> _Run:
        """A new reconcile, or the continuation of one that left work for later."""
        later = self._later.pop(key, "") if self._later else ""
        causes = self._causes.pop(key, None)
        run = self._open.pop(key, None) if self._open else None
        if run is None:
            return _Run(f"{self.name}-{next(self._rids):x}", causes or {later: None})
        run.causes.update(causes or {})
        return run

    def _record(self, key: K, run: _Run, arm: Arm, text: str) -> None:
        self._counts[arm].inc()
        self._seconds.observe(run.took)
        entry = Entry(self._clock.now(), run.rid, "+".join(run.causes), "; ".join(run.plan), text, run.took)
        self._history.record((self.name, key), entry)

    def _settled(self, item: Item[K], done: Done) -> tuple[Arm, str]:
        """The reconcile succeeded. Returns what the metric and the history show."""
        key, priority, _ = item
        if key in self._troubled:
            self._forget(key)
        if key in self._moments:
            del self._moments[key]
        self.queue.done(key, settled=True)
        if done.again_at is None and done.again_after is None:
            return Arm.DONE, "done"
        if done.background:
            priority = Priority.BACKGROUND
        if done.again_at is not None:
            self._moments[key] = (done.again_at, priority)
        delay = done.delay(self._clock.now()) or 0.0
        self.wake(key, "again", priority, after=delay)
        return Arm.AGAIN, f"again in {delay:.3f} s"

    def _failed(self, item: Item[K], outcome: BaseException) -> tuple[Arm, str]:
        """The central switch: one arm, one queue action. Returns what the metric and the history show."""
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
        """Retries with a growing delay. An outage of the server fails all keys alike, so it is logged once for all of them."""
        delay, away = self._backoff.next(key), unavailable(outcome)
        if away is not None:
            delay = min(delay, self._limits.longest_outage)
            self.outage.failed(away)
            log.debug("reconcile cut off", error=away, again_in=delay)
        else:
            log.error("reconcile failed", exc=outcome, again_in=delay, failures=self._backoff.failures(key))
        self.wake(key, "retry", priority, after=delay)

    def _patient(self, key: K) -> bool:
        """Whether a conflict is still retried at once: two writers must not spin against each other for ever."""
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
        with tracer.span("reconcile", controller=name, key=key):  # records how it ends
            return await reconcile(key)

    return traced


@coroutine
def _give_way() -> Generator[None]:
    """As `asyncio.sleep(0)`, without its overhead."""
    yield
