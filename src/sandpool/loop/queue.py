"""The work queue of a controller, as client-go's: keys without duplicates, delays, many workers, two priorities, an orderly end.

A key that is added again before it is taken is handed out once. No key is with two workers at once; one that is added while it is processed is
handed out once more afterwards. Of several delays the earliest counts. Urgent keys go before background ones, but a background key that has waited
for `patience` gets every other turn (kube/priority.py has the policy). Within a priority, flows take turns (loop/fair_queue.py). Queues that share
`UrgentWork` hold their background keys back while any of them has an urgent one, each key at most for its patience, and not at all while
background work makes what others wait for (`expedite_background_while`).
With `workers`, a flow holds at most `SPREAD` times as many of them as are free: however slow its keys are, other flows find a worker.

Only one thread uses it, so there are no locks. Every operation costs O(1), or O(log delays) where a delay is involved.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from sandpool.base.clock import Clock, Timer
from sandpool.kube.priority import PATIENCE, Priority, UrgentWork
from sandpool.loop.fair_queue import FairQueue

K = TypeVar("K", bound=Hashable)

_tuple = tuple.__new__


SPREAD = 3


class Item(NamedTuple, Generic[K]):
    """A key that a worker has taken. Give it back with `done`."""

    key: K
    priority: Priority
    waited: float


class _Delay(NamedTuple):
    deadline: float
    priority: Priority


class Queue(Generic[K]):
    """`add` keys; a worker takes one with `take` and gives it back with `done`."""

    def __init__(
        self,
        clock: Clock,
        *,
        patience: float = PATIENCE,
        flow: Callable[[K], str] = lambda key: "",
        workers: int | None = None,
    ) -> None:
        """`workers`: how many there are, if flows share them; None: each may hold all of them."""
        self._clock = clock
        self._workers = workers
        self._held: dict[str, int] = {}  # keys with a worker, by flow; only counted if flows share the workers
        self._patience = patience
        # Waiting keys, urgent and background. A waiting key is in exactly one of the two and never in _processing.
        self._lanes: tuple[FairQueue[K], ...] = (FairQueue(flow), FairQueue(flow))
        # Keys with a worker: with which priority, and the delay that was pending when it was taken.
        self._processing: dict[K, tuple[Priority, _Delay | None]] = {}
        # Keys added while with a worker: they wait again when that worker is done. A subset of _processing.
        self._dirty: dict[K, Priority] = {}
        # Delayed keys. The heap may hold entries that are outdated: only those that _delayed confirms count.
        self._delayed: dict[K, _Delay] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()
        self._timer: Timer | None = None
        self._timer_at = float("inf")
        self._takers: deque[asyncio.Future[None]] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._last = Priority.BACKGROUND
        self._closed = False
        self._urgent: UrgentWork | None = None
        self._wait_timer: Timer | None = None  # until background keys have waited long enough
        self._pressed: Callable[[], bool] | None = None

    def __len__(self) -> int:
        """Keys that wait for a worker; delayed ones do not."""
        return len(self._lanes[0].since) + len(self._lanes[1].since)

    @property
    def timers(self) -> int:
        """Entries that are kept for delayed keys, outdated ones included."""
        return len(self._heap)

    def share(self, urgent: UrgentWork) -> None:
        """Hold background keys back while there is urgent work in any queue that shares it. To be called before the first key comes."""
        self._urgent = urgent
        urgent.on_idle(self._release_background)

    def expedite_background_while(self, pressed: Callable[[], bool]) -> None:
        """Background keys get every other turn at once while `pressed` is true. Call `recheck` when it becomes true."""
        self._pressed = pressed

    def recheck(self) -> None:
        """Hand out background keys that need not wait any more."""
        self._release_background()

    def add(self, key: K, priority: Priority = Priority.URGENT, *, after: float = 0.0) -> None:
        """Process the key, `after` seconds from now. Ignored once the queue is shut down."""
        if self._closed:
            return
        if after > 0:
            self._delay(key, _Delay(self._clock.monotonic() + after, priority))
        elif key in self._processing:
            self._dirty[key] = min(priority, self._dirty.get(key, priority))
        else:
            self._enter(key, priority)

    def lead(self, keys: Sequence[K]) -> None:
        """Moves these keys, if they wait as urgent ones, to the front, in this order."""
        first = self._lanes[Priority.URGENT]
        for key in reversed(keys):
            if key in first.since:
                first.lead(key)

    async def take(self) -> Item[K] | None:
        """The next key; None once the queue is shut down and nothing waits any more."""
        while (item := self.take_nowait()) is None:
            if self._closed and not self._dirty:
                return None
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except BaseException:
                if taker.done() and not taker.cancelled():
                    self._wake()  # it was this taker's turn: wake another
                elif taker in self._takers:
                    self._takers.remove(taker)
                raise
        return item

    def take_nowait(self) -> Item[K] | None:
        now = self._clock.monotonic()
        if self._heap and self._heap[0][0] <= now:
            self._ripen(now)
        first, second = self._lanes
        priority = Priority.URGENT
        if second.since:
            chosen = self._next_priority(now)
            if chosen is None:
                self._set_wait_timer()
                return None
            priority = chosen
        elif not first.since:
            return None
        if self._workers is None:
            key, since = self._lanes[priority].pop()
        else:
            found = self._pop_shared(priority, now)
            if found is None:
                return None
            priority, key, since = found
        self._last = priority
        self._processing[key] = (priority, self._delayed.pop(key, None) if self._delayed else None)
        return _tuple(Item, (key, priority, now - since))  # as Item(...) does, without a call in between

    def done(self, key: K, *, settled: bool = False) -> None:
        """Gives a key back. `settled`: the reconcile was complete, so a delay that was pending when the key was
        taken is dropped; otherwise it stays. Delays added meanwhile stay in any case."""
        priority, delay = self._processing.pop(key)
        if self._workers is not None:
            self._give_back(key)
        if delay is not None and not settled and not self._closed:
            self._delay(key, delay)
        if key in self._dirty:
            self._enter(key, self._dirty.pop(key))
        if priority is Priority.URGENT and self._urgent is not None:
            self._urgent.ended()
        if self._closed or self._idle:
            self._settle_end()

    def shut_down(self) -> None:
        """Accepts no more keys and drops delayed ones. Keys that wait, or were added while processed, are still handed out."""
        self._closed = True
        self._delayed.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, float("inf")
        self._release_background()  # nothing is held back any more
        self._settle_end()

    async def drained(self) -> None:
        """Returns when nothing waits and no worker holds a key."""
        while len(self) or self._processing:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def _pop_shared(self, priority: Priority, now: float) -> tuple[Priority, K, float] | None:
        """The next key of a flow that may have another worker; of the other priority, if there is none of this one."""
        other = Priority.BACKGROUND if priority is Priority.URGENT else Priority.URGENT
        for each in (priority, other):
            if each is Priority.BACKGROUND and (not self._lanes[each].since or self._must_wait(now)):
                continue
            found = self._lanes[each].pop_from(self._may_hold)
            if found is not None:
                flow = self._lanes[each].flow(found[0])
                self._held[flow] = self._held.get(flow, 0) + 1
                return each, *found
        return None

    def _may_hold(self, flow: str) -> bool:
        """Whether a flow may have one more worker. One that has none always may."""
        held = self._held.get(flow, 0)
        if not held or self._closed:
            return True
        assert self._workers is not None
        return held < SPREAD * (self._workers - len(self._processing) - 1)

    def _give_back(self, key: K) -> None:
        """A worker is free: keys may be taken now for which there were idle workers before, but not for their flow."""
        flow = self._lanes[0].flow(key)
        self._held[flow] -= 1
        if not self._held[flow]:
            del self._held[flow]
        for _ in range(min(len(self), len(self._takers))):
            self._wake()

    def _next_priority(self, now: float) -> Priority | None:
        """Which priority is next while background keys wait. None: they are held back, and no urgent key waits."""
        if not self._lanes[0].since:
            return None if self._must_wait(now) else Priority.BACKGROUND
        if self._last is Priority.BACKGROUND:
            return Priority.URGENT
        return Priority.BACKGROUND if self._waited_enough(now) else Priority.URGENT

    def _waited_enough(self, now: float) -> bool:
        """Whether background keys have waited long enough. The tolerance is for timers that fire a rounding error early."""
        if self._pressed is not None and self._pressed():
            return True
        return now - self._lanes[1].oldest >= self._patience - 1e-9

    def _must_wait(self, now: float) -> bool:
        """Whether background keys are held back because of urgent work of other queues."""
        return self._urgent is not None and not self._urgent.idle and not self._closed and not self._waited_enough(now)

    def _release_background(self) -> None:
        """Background keys need not wait any more: wake as many workers as there are such keys."""
        if self._wait_timer is not None:
            self._wait_timer.cancel()
            self._wait_timer = None
        for _ in range(min(len(self._lanes[1].since), len(self._takers))):
            self._wake()

    def _on_waited(self) -> None:
        self._wait_timer = None
        if self._lanes[1].since and self._must_wait(self._clock.monotonic()):  # another key is the oldest by now
            self._set_wait_timer()
        else:
            self._release_background()

    def _set_wait_timer(self) -> None:
        if self._wait_timer is None:
            waits = self._lanes[1].oldest + self._patience - self._clock.monotonic()
            self._wait_timer = self._clock.call_later(max(0.0, waits), self._on_waited)

    def _enter(self, key: K, priority: Priority) -> None:
        first, second = self._lanes
        if key in first.since:
            return
        if priority is not Priority.URGENT:
            if key not in second.since:
                now = self._clock.monotonic()
                second.put(key, now)
                if self._must_wait(now):
                    self._set_wait_timer()
                elif self._takers:
                    self._wake()
            return
        since = second.remove(key) if key in second.since else None
        first.put(key, self._clock.monotonic() if since is None else since)
        if self._urgent is not None:
            self._urgent.began()
        if self._takers:
            self._wake()

    def _wake(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    def _delay(self, key: K, delay: _Delay) -> None:
        known = self._delayed.get(key)
        if known is not None:
            merged = _Delay(min(known.deadline, delay.deadline), min(known.priority, delay.priority))
            self._delayed[key] = merged
            if merged.deadline == known.deadline:
                return
        else:
            self._delayed[key] = delay
        heapq.heappush(self._heap, (delay.deadline, next(self._order), key))
        if len(self._heap) > 64 + 2 * len(self._delayed):  # outdated entries must not pile up
            self._heap = [(d.deadline, next(self._order), k) for k, d in self._delayed.items()]
            heapq.heapify(self._heap)
        self._set_timer()

    def _ripen(self, now: float) -> None:
        """Moves due keys from the delayed to the waiting ones."""
        while self._heap and self._heap[0][0] <= now:
            deadline, _, key = heapq.heappop(self._heap)
            delay = self._delayed.get(key)
            if delay is not None and delay.deadline == deadline:
                del self._delayed[key]
                self.add(key, delay.priority)

    def _set_timer(self) -> None:
        deadline = self._heap[0][0]
        if deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = self._clock.call_later(max(0.0, deadline - self._clock.monotonic()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self._ripen(self._clock.monotonic())
        if self._heap:
            self._set_timer()

    def _settle_end(self) -> None:
        """Wakes takers that have nothing left to take, and callers of `drained`."""
        if self._closed and not len(self) and not self._dirty:
            while self._takers:
                self._wake()
        if not len(self) and not self._processing:
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle.clear()
