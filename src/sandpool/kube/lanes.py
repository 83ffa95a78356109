"""Two lanes to one server: what a claim waits for goes first, what a pool waits for second.

A server has a fixed rate, so writes in flight are bounded: more at once only makes each wait for all the others. The
second lane rests while a write of the first is in flight or waits, each request at most `rest` seconds; after that the
lanes take turns. While what the first lane waits for is made in the second (`hurry`: claims wait, and pools have nothing left), nobody
rests, and they take turns at once. The second lane never holds more than half of the places, so that the first always finds one. Reads need no
place. Every request, whatever its lane, takes a token of the rate limit. Within a lane it is first come, first served, but
what ends something that has begun goes before what begins something (`finishing`): else, in a burst, all would end last.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar, Token
from enum import IntEnum

from sandpool.kube.rate import TokenBucket
from sandpool.kube.timing import Clock


class Lane(IntEnum):
    URGENT = 0
    BACKGROUND = 1


_LANE: ContextVar[Lane] = ContextVar("sandpool_lane", default=Lane.URGENT)
_FINISHING: ContextVar[bool] = ContextVar("sandpool_finishing", default=False)


present_lane: Callable[[], Lane] = _LANE.get
"""Which lane requests take that are made here."""


class lane_of:
    """Requests made inside, also by tasks started there, take this lane: `with lane_of(Lane.BACKGROUND): ...`"""

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


class _Ticket:
    __slots__ = ("arrived", "granted")

    def __init__(self, granted: asyncio.Future[None], arrived: float) -> None:
        self.granted = granted
        self.arrived = arrived


class LaneGate:
    """Pass it with `enter`; a write gives its place back with `leave`."""

    def __init__(self, clock: Clock, *, width: int = 50, rest: float = 2.0, bucket: TokenBucket | None = None) -> None:
        self._clock = clock
        self._rest = rest
        self._bucket = bucket or TokenBucket(0, 1)
        self._places = (max(1, width), max(1, width // 2))  # how many writes in all each lane may make it
        self._in_flight = [0, 0]
        self._reads: tuple[deque[_Ticket], deque[_Ticket]] = (deque(), deque())
        self._writes: tuple[deque[_Ticket], deque[_Ticket]] = (deque(), deque())
        self._last = Lane.BACKGROUND  # who went last: when both lanes may go, it is the other's turn
        self._timer: asyncio.TimerHandle | None = None
        self._hurried: list[Callable[[], bool]] = []

    def hurry(self, hurried: Callable[[], bool]) -> None:
        """The second lane does not rest while `hurried` says so. Call `look` when it begins to."""
        self._hurried.append(hurried)

    def look(self) -> None:
        """Whoever may go now goes."""
        if self._anybody():
            self._serve()

    @property
    def in_flight(self) -> int:
        """Writes that have passed and not yet left."""
        return self._in_flight[0] + self._in_flight[1]

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in (*self._reads, *self._writes))

    def enter_now(self, lane: Lane) -> bool:
        """Whether a write may be sent without waiting; if so, it has its place."""
        if self._writes[lane] or not self._bucket.unlimited or not self._open(lane):
            return False
        self._in_flight[lane] += 1
        return True

    async def enter(self, lane: Lane, write: bool) -> None:
        """Wait for permission to send one request."""
        queue = (self._writes if write else self._reads)[lane]
        if self.enter_now(lane) if write else (not queue and self._bucket.unlimited):
            return
        ticket = _Ticket(asyncio.get_running_loop().create_future(), self._clock.monotonic())
        if _FINISHING.get():
            queue.appendleft(ticket)
        else:
            queue.append(ticket)
        self._serve()
        try:
            await ticket.granted
        except asyncio.CancelledError:
            self._withdraw(ticket, queue, lane, write)
            raise

    def leave(self, lane: Lane) -> None:
        """A write has its answer, or will have none."""
        self._in_flight[lane] -= 1
        if self._anybody():
            self._serve()

    def _withdraw(self, ticket: _Ticket, queue: deque[_Ticket], lane: Lane, write: bool) -> None:
        if not ticket.granted.cancelled():  # permission and cancellation met: give the place back
            if write:
                self.leave(lane)
            return
        if ticket in queue:
            queue.remove(ticket)
        self._serve()  # the first lane may have become quiet

    def _serve(self) -> None:
        """Let through whoever may go now, and arrange to look again when time alone will change the answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._anybody():
            return
        now = self._clock.monotonic()
        while (chosen := self._next(now)) is not None:
            lane, write = chosen
            queue = (self._writes if write else self._reads)[lane]
            if queue[0].granted.done():  # cancelled, and its task has not run yet
                queue.popleft()
                continue
            if not self._bucket.take(now):
                break
            if write:
                self._in_flight[lane] += 1
            queue.popleft().granted.set_result(None)
            self._last = lane
        again = self._look_again(now)
        if again is not None:
            self._timer = asyncio.get_running_loop().call_later(again, self._serve)

    def _next(self, now: float) -> tuple[Lane, bool] | None:
        """Who goes next if there is a token: the lane, and whether it is a write."""
        urgent = self._candidate(Lane.URGENT, now)
        background = self._candidate(Lane.BACKGROUND, now)
        if urgent is None or background is None:
            return urgent or background
        if not self._rested((self._writes if background[1] else self._reads)[Lane.BACKGROUND][0], now):
            return urgent
        return background if self._last is Lane.URGENT else urgent

    def _candidate(self, lane: Lane, now: float) -> tuple[Lane, bool] | None:
        reads, writes = self._reads[lane], self._writes[lane]
        if writes and (self._open(lane) or (self._room(lane) and self._rested(writes[0], now))):
            # A token goes to whoever came first: neither a stream of reads nor one of writes starves the other.
            return (lane, not reads or writes[0].arrived < reads[0].arrived)
        return (lane, False) if reads else None

    def _open(self, lane: Lane) -> bool:
        """May a write of this lane go without having rested?"""
        if not self._room(lane):
            return False
        return lane is Lane.URGENT or not (self._in_flight[0] or self._writes[0]) or self._in_a_hurry()

    def _room(self, lane: Lane) -> bool:
        if self._in_flight[0] + self._in_flight[1] >= self._places[0]:
            return False
        return self._in_flight[lane] < self._places[lane]

    def _rested(self, ticket: _Ticket, now: float) -> bool:
        # The hair is for timers that fire a rounding error early.
        return now - ticket.arrived >= self._rest - 1e-9 or self._in_a_hurry()

    def _in_a_hurry(self) -> bool:
        return any(hurried() for hurried in self._hurried)

    def _look_again(self, now: float) -> float | None:
        """Seconds after which somebody may go although nobody left."""
        if not self._anybody():
            return None
        waits = []
        if (token := self._bucket.wait(now)) > 0:
            waits.append(token)
        writes = self._writes[Lane.BACKGROUND]
        if writes and not self._rested(writes[0], now):
            waits.append(writes[0].arrived + self._rest - now)
        return min(waits) if waits else None

    def _anybody(self) -> bool:
        (urgent_reads, reads), (urgent_writes, writes) = self._reads, self._writes
        return bool(urgent_writes or writes or urgent_reads or reads)
