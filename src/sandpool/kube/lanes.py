"""Lanes to one server: writes are sorted by what they are for, and every lane keeps a share when others wait.

A server has a fixed rate, so writes in flight are bounded: more at once only makes each wait for all the others. The bound is a fixed
number, or is learned from the server's answers (pacing.py). What claims wait for goes first, but for a while only: another lane rests for `grace`
seconds while writes of claims are in flight and for `patience` while some wait; then it takes turns with them by weight (fair.py). Without writes
of claims it has everything at once. Refill does not rest at all while claims wait for members (`hurry`): to make these is what they wait for. No lane
is ever kept out. Reads need no place. Every request, whatever its lane, takes a token of the rate limit.

Within a lane it is first come, first served, and a request that is sent again keeps its place: claims of a pool are not reordered here. One that
was refused goes before its rest is over rather than being overtaken (rests.py). Only what ends something that has begun goes before what begins
something (`finishing`): else, in a burst, all would end last.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from enum import IntEnum
from itertools import count
from typing import Final

from sandpool.base.clock import Clock
from sandpool.base.rate_limit import TokenBucket
from sandpool.base.stride import Turns
from sandpool.kube.pacing import Outcome, Pacer
from sandpool.kube.rests import Place, Rest, Rests, proof


class Lane(IntEnum):
    """What a write is for."""

    CLAIMS = 0  # somebody waits for it
    REFILL = 1  # makes members of pools
    CLEANUP = 2  # removes what nobody needs
    STATUS = 3  # says how things are: marks, counts, Events


WEIGHTS: Final = {Lane.CLAIMS: 3, Lane.REFILL: 3, Lane.CLEANUP: 1, Lane.STATUS: 1}
"""Turns when all lanes have waited long enough. About what a claim costs in each, so that none falls behind in the long run."""

_LANES: Final = tuple(Lane)
_LANE: ContextVar[Lane] = ContextVar("sandpool_lane", default=Lane.CLAIMS)
_FINISHING: ContextVar[bool] = ContextVar("sandpool_finishing", default=False)


present_lane: Callable[[], Lane] = _LANE.get
"""Which lane requests take that are made here."""


class lane_of:
    """Requests made inside, also by tasks started there, take this lane: `with lane_of(Lane.REFILL): ...`"""

    __slots__ = ("_lane", "_token")

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def __enter__(self) -> None:
        self._token: Token[Lane] = _LANE.set(self._lane)

    def __exit__(self, *_: object) -> None:
        _LANE.reset(self._token)


take_lane: Callable[[Lane], object] = _LANE.set
"""As `lane_of`, until it is called again: for a task that does one thing after the other, and so never has to take it back."""


class finishing:
    """Requests made inside go to the head of their lane: `with finishing(): ...`"""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token: Token[bool] = _FINISHING.set(True)

    def __exit__(self, *_: object) -> None:
        _FINISHING.reset(self._token)


class _Waiting:
    """The requests of one lane that wait, in order. Those that gave up are skipped when it is their turn."""

    __slots__ = ("heap", "left")

    def __init__(self) -> None:
        self.heap: list[tuple[Place, float, asyncio.Future[None]]] = []  # place, since when, and what it waits for
        self.left = 0  # how many in the heap still wait

    def add(self, place: Place, since: float, granted: asyncio.Future[None]) -> None:
        heapq.heappush(self.heap, (place, since, granted))
        self.left += 1

    def first(self) -> tuple[Place, float] | None:
        """Who is next, and since when that has waited."""
        heap = self.heap
        while heap and heap[0][2].done():
            heapq.heappop(heap)
        return heap[0][:2] if heap else None

    def grant(self) -> None:
        heapq.heappop(self.heap)[2].set_result(None)
        self.left -= 1


class LaneGate:
    """Pass it with `enter`; a write gives its place back with `leave`. With a `pacer` the width is the most that it may allow."""

    def __init__(
        self,
        clock: Clock,
        *,
        width: int = 50,
        patience: float = 2.0,
        grace: float = 0.5,
        bucket: TokenBucket | None = None,
        pacer: Pacer | None = None,
    ) -> None:
        self._clock = clock
        self._patience, self._grace = patience, min(grace, patience)
        self._bucket = bucket or TokenBucket(0, 1)
        self._unlimited = self._bucket.unlimited
        self._width = max(1, width)
        self._pacer = pacer
        self._allowed = self._width if pacer is None else min(self._width, pacer.view.allowed(clock.monotonic()))
        self._flying = 0
        self._in_flight = [0] * len(Lane)
        self._waiting = 0
        self._reads = tuple(_Waiting() for _ in Lane)
        self._writes = tuple(_Waiting() for _ in Lane)
        self._rests = tuple(Rests() for _ in Lane)
        self._served = 0  # writes, so far
        self._turns = Turns([WEIGHTS[lane] for lane in Lane])
        self._arrivals = count()
        self._timer: asyncio.TimerHandle | None = None
        self._hurried: list[Callable[[], bool]] = []

    def hurry(self, hurried: Callable[[], bool]) -> None:
        """Refill takes turns with claims at once while `hurried` says so. Call `look` when it begins to."""
        self._hurried.append(hurried)

    def look(self) -> None:
        """Whoever rested and need not any more goes."""
        if self._waiting:
            self._serve()

    @property
    def allowed(self) -> int:
        """How many writes may be in flight at the moment."""
        return self._allowed

    @property
    def in_flight(self) -> int:
        """Writes that have passed and not yet left."""
        return self._flying

    @property
    def waiting(self) -> int:
        return self._waiting

    def in_lane(self, lane: Lane) -> tuple[int, int]:
        """Writes of a lane that are in flight, and requests of it that wait."""
        return self._in_flight[lane], self._reads[lane].left + self._writes[lane].left

    def enter_now(self, lane: Lane) -> bool:
        """Whether a write may be sent without waiting; if so, it has its place."""
        if self._waiting or self._flying >= self._allowed or not self._unlimited or self._rests[lane]:
            return False
        if lane and self._in_flight[0] and not self._patient_enough(lane, self._grace, 0.0):
            return False
        self._flying += 1
        self._in_flight[lane] += 1
        return True

    async def enter(self, lane: Lane, write: bool, arrival: int | None = None) -> int:
        """Wait for permission to send one request. The answer is when it came: whoever sends it again gives that back."""
        if arrival is None:
            arrival = next(self._arrivals)
        if self.enter_now(lane) if write else self._unlimited:
            return arrival
        queue = (self._writes if write else self._reads)[lane]
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._writes[lane].left and not self._reads[lane].left:
            self._turns.joined(lane)
        queue.add((not _FINISHING.get(), arrival), self._clock.monotonic(), granted)
        self._waiting += 1
        self._serve()
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # permission and cancellation met: give the place back
                if write:
                    self.leave(lane)
            else:
                self._waiting -= 1
                queue.left -= 1
            raise
        return arrival

    async def enter_again(self, lane: Lane, arrival: int, early: int, wait: float) -> bool:
        """As `enter`, for a write that was refused and has left: after `wait` seconds, or before that instead of a younger one. True if it was
        that. `early`: how often it was that already."""
        loop = asyncio.get_running_loop()
        rest = Rest((not _FINISHING.get(), arrival), self._served + proof(early), loop.create_future())
        self._rests[lane].add(rest)
        sleep = loop.create_task(self._clock.sleep(wait))
        try:
            await asyncio.wait((sleep, rest.granted), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if rest.granted.done():  # permission and cancellation met: give the place back
                self.leave(lane)
            raise
        finally:
            self._rests[lane].remove(rest)
            sleep.cancel()
        if rest.granted.done():
            return True
        await self.enter(lane, True, arrival)
        return False

    def leave(self, lane: Lane) -> None:
        """A write has its answer, or will have none."""
        self._flying -= 1
        self._in_flight[lane] -= 1
        if self._waiting:
            self._serve()

    def learn(self, kind: str, outcome: Outcome, sent: float, retry_after: float = 0.0, *, own: bool = False) -> None:
        """What became of a write that has not left yet; `kind` is its verb and resource. `own`: if it was refused, then for a reason of its own."""
        pacer = self._pacer
        self._served += outcome is Outcome.SERVED
        if pacer is not None:
            now, busy = self._clock.monotonic(), 2 * self._flying >= self._allowed
            pacer.hear(kind, outcome, sent=sent, now=now, busy=busy, retry_after=retry_after, own=own)
            self._allowed = min(self._width, pacer.view.allowed(now))

    def _serve(self) -> None:
        """Let through whoever may go now, and arrange to look again when time alone will change the answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.monotonic()
        if self._pacer is not None:
            self._allowed = min(self._width, self._pacer.view.allowed(now))
        replaced = [0] * len(Lane)  # writes instead of which another one was sent: they wait for the next time
        while self._waiting:
            ready = self._ready(now, replaced)
            if not ready or not self._bucket.take(now):
                break
            lane = Lane(self._turns.choose(ready))
            self._turns.took(lane)
            if ready[lane] and self._sent_instead(lane):
                replaced[lane] += 1
                continue
            self._waiting -= 1
            if ready[lane]:
                self._flying += 1
                self._in_flight[lane] += 1
                self._writes[lane].grant()
            else:
                self._reads[lane].grant()
        if self._waiting and (again := self._look_again(now)) > 0:
            self._timer = asyncio.get_running_loop().call_later(again, self._serve)

    def _sent_instead(self, lane: Lane) -> bool:
        """Whether another write goes instead of the next one of a lane, because it is older and was refused before."""
        head = self._writes[lane].first() if self._rests[lane] else None
        rest = None if head is None else self._rests[lane].take(head[0], self._served)
        if rest is None:
            return False
        self._flying += 1
        self._in_flight[lane] += 1
        rest.granted.set_result(None)
        return True

    def _ready(self, now: float, replaced: Sequence[int]) -> dict[Lane, bool]:
        """The lanes of which a request may go if there is a token, and whether that is a write. Of a read and a write the one goes
        that came first: neither a stream of reads nor one of writes starves the other."""
        room, ready = self._flying < self._allowed, {}
        for lane in _LANES:
            read, write = self._reads[lane].first(), self._writes[lane].first() if room else None
            head = write if write is not None and (read is None or write < read) else read
            if head is None or (head is write and self._writes[lane].left <= replaced[lane]):
                continue
            patience = (
                self._patience if Lane.CLAIMS in ready else self._grace if self._in_flight[0] and head is write else 0.0
            )
            if not lane or self._patient_enough(lane, patience, now - head[1]):
                ready[lane] = head is write
        return ready

    def _patient_enough(self, lane: Lane, patience: float, waited: float) -> bool:
        """Whether a lane need not wait for that of the claims any more. The hair is for timers that fire a rounding error early."""
        if waited >= patience - 1e-9:
            return True
        return lane is Lane.REFILL and any(hurried() for hurried in self._hurried)

    def _look_again(self, now: float) -> float:
        """Seconds after which somebody may go although nobody left; 0 if only that helps."""
        held = self._pacer.view.held_until - now if self._pacer is not None else 0.0
        waits = [held, self._bucket.wait(now)]
        if self._in_flight[0]:
            waits += [head[1] + self._grace - now for queue in self._writes[1:] if (head := queue.first()) is not None]
        return min((wait for wait in waits if wait > 0), default=0.0)
