"""The work queue: fair, stingy, many workers, delays, two lanes, orderly end.

Stingy: a key added again and again before it is taken is handed out once. Exclusive: a key is never with two workers; added
while it is processed, it is handed out once more afterwards. Delayed: of several delays the earliest counts. Lanes: the
first goes before the second, but a second lane that waited for `patience` gets every other turn; in each, parties take turns (loop/lane.py). Queues that share a rush
(loop/rush.py) rest their second lanes while a first lane of any of them is at work, each key at most for its patience; none rests while
the second lane makes what others wait for (`hurry`).
Only one thread uses it, so there are no locks; every operation costs O(1), or O(log delays) where a delay is involved.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from enum import IntEnum
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from sandpool.base.clock import Clock, Timer
from sandpool.loop.lane import Lane
from sandpool.loop.rush import Rush

K = TypeVar("K", bound=Hashable)


_tuple = tuple.__new__


class Priority(IntEnum):
    FIRST = 0
    SECOND = 1


class Item(NamedTuple, Generic[K]):
    """A key in a worker's hands: give it back with `done`."""

    key: K
    priority: Priority
    waited: float


class _Delay(NamedTuple):
    deadline: float
    priority: Priority


class Queue(Generic[K]):
    def __init__(self, clock: Clock, *, patience: float = 2.0, party: Callable[[K], str] = lambda key: "") -> None:
        self._clock = clock
        self._patience = patience
        # Waiting keys, and since when. A waiting key is in exactly one lane and never in _processing.
        self._lanes: tuple[Lane[K], ...] = tuple(Lane(party) for _ in Priority)
        # Keys with a worker: out of which lane, and the delay that was pending when it was taken.
        self._processing: dict[K, tuple[Priority, _Delay | None]] = {}
        # Keys added while with a worker: they go into a lane when that worker is done. A subset of _processing.
        self._dirty: dict[K, Priority] = {}
        # Delayed keys. The heap may hold entries that are outdated: only those that _delayed confirms count.
        self._delayed: dict[K, _Delay] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()
        self._timer: Timer | None = None
        self._timer_at = float("inf")
        self._takers: deque[asyncio.Future[None]] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._last = Priority.SECOND
        self._closed = False
        self._rush: Rush | None = None
        self._rest: Timer | None = None  # until the second lane has rested
        self._hurried: Callable[[], bool] | None = None

    def __len__(self) -> int:
        """Keys that wait for a worker; delayed ones do not."""
        return len(self._lanes[0].since) + len(self._lanes[1].since)

    def share(self, rush: Rush) -> None:
        """From now on the second lane rests while the rush lasts. To be called before the first key comes."""
        self._rush = rush
        rush.join(self._calmed)

    def hurry(self, hurried: Callable[[], bool]) -> None:
        """The second lane does not rest while `hurried` says so: it has every other turn. Call `look` when it begins to."""
        self._hurried = hurried

    def look(self) -> None:
        """Whoever rested and need not any more gets a worker."""
        self._calmed()

    def add(self, key: K, priority: Priority = Priority.FIRST, *, after: float = 0.0) -> None:
        """Wants the key processed, `after` seconds from now. Ignored once the queue is shut down."""
        if self._closed:
            return
        if after > 0:
            self._delay(key, _Delay(self._clock.monotonic() + after, priority))
        elif key in self._processing:
            self._dirty[key] = min(priority, self._dirty.get(key, priority))
        else:
            self._enter(key, priority)

    def lead(self, keys: Sequence[K]) -> None:
        """Of those that wait in the first lane these come next, in this order, whoever woke them when."""
        first = self._lanes[Priority.FIRST]
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
                    self._wake()  # it was this taker's turn: somebody else must have it
                elif taker in self._takers:
                    self._takers.remove(taker)
                raise
        return item

    def take_nowait(self) -> Item[K] | None:
        now = self._clock.monotonic()
        if self._heap and self._heap[0][0] <= now:
            self._ripen(now)
        first, second = self._lanes
        priority = Priority.FIRST
        if second.since:
            chosen = self._next_lane(now)
            if chosen is None:
                self._set_rest()
                return None
            priority = chosen
        elif not first.since:
            return None
        key, since = self._lanes[priority].pop()
        self._last = priority
        self._processing[key] = (priority, self._delayed.pop(key, None) if self._delayed else None)
        return _tuple(Item, (key, priority, now - since))  # as Item(...) does, without a call in between

    def done(self, key: K, *, settled: bool = False) -> None:
        """Gives a key back. `settled`: the worker looked at everything, so a delay that was pending when the key was
        taken has served its purpose; otherwise that delay stands. Delays asked for meanwhile stand in any case."""
        lane, delay = self._processing.pop(key)
        if delay is not None and not settled and not self._closed:
            self._delay(key, delay)
        if key in self._dirty:
            self._enter(key, self._dirty.pop(key))
        if lane is Priority.FIRST and self._rush is not None:
            self._rush.ended()
        if self._closed or self._idle:
            self._settle_end()

    def shut_down(self) -> None:
        """Accepts nothing more and drops what is delayed; what waits, or was added while processed, is still handed out."""
        self._closed = True
        self._delayed.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, float("inf")
        self._calmed()  # there is no rest any more
        self._settle_end()

    async def drained(self) -> None:
        """Returns when nothing waits and no worker holds a key."""
        while len(self) or self._processing:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def _next_lane(self, now: float) -> Priority | None:
        """Whose turn it is while there are keys in the second lane."""
        if not self._lanes[0].since:
            return None if self._resting(now) else Priority.SECOND
        if self._last is Priority.SECOND:
            return Priority.FIRST
        return Priority.SECOND if self._rested(now) else Priority.FIRST

    def _rested(self, now: float) -> bool:
        """Whether the second lane has waited long enough. The hair is for timers that fire a rounding error early."""
        if self._hurried is not None and self._hurried():
            return True
        return now - self._lanes[1].oldest >= self._patience - 1e-9

    def _resting(self, now: float) -> bool:
        """Whether the keys of the second lane have to wait because of others than this queue's first lane."""
        return self._rush is not None and not self._rush.calm and not self._closed and not self._rested(now)

    def _calmed(self) -> None:
        """The second lane need not rest any more: as many workers as it has keys."""
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        for _ in range(min(len(self._lanes[1].since), len(self._takers))):
            self._wake()

    def _on_rested(self) -> None:
        self._rest = None
        if self._lanes[1].since and self._resting(self._clock.monotonic()):  # another key is the oldest by now
            self._set_rest()
        else:
            self._calmed()

    def _set_rest(self) -> None:
        if self._rest is None:
            waits = self._lanes[1].oldest + self._patience - self._clock.monotonic()
            self._rest = self._clock.call_later(max(0.0, waits), self._on_rested)

    def _enter(self, key: K, priority: Priority) -> None:
        first, second = self._lanes
        if key in first.since:
            return
        if priority is Priority.SECOND:
            if key not in second.since:
                now = self._clock.monotonic()
                second.put(key, now)
                if self._resting(now):
                    self._set_rest()
                elif self._takers:
                    self._wake()
            return
        since = second.remove(key) if key in second.since else None
        first.put(key, self._clock.monotonic() if since is None else since)
        if self._rush is not None:
            self._rush.began()
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
        """Moves what is due from the delays into its lane."""
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
        """Takers with nothing left to take return, and whoever waits for the end learns of it."""
        if self._closed and not len(self) and not self._dirty:
            while self._takers:
                self._wake()
        if not len(self) and not self._processing:
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle.clear()
