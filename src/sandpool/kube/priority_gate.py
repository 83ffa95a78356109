"""The gate in front of one API server: bounds writes in flight and decides, by priority, whose turn it is.

What each priority means is in kube/priority.py. A server has a fixed rate, so writes in flight are bounded: more at once only makes each wait
for all the others. The bound is a fixed number, or is learned from the server's answers (pacing.py). The gate keeps one lane for each priority.
Reads need no place. Every request, whatever its priority, takes a token of the rate limit.

Within a lane it is first come, first served, and a request that is sent again keeps its place: claims of a pool are not reordered here.
Only `expedited` writes go before others of their lane.

A write that the server refused (429) pauses before its next try, and everything younger would overtake it. So where a younger write of its lane
would be sent, the refused one is sent instead, once another write has been served since it was refused. The server gets no request more than
otherwise, and the write that was not sent is next. After each such try that is refused again, twice as many writes must have been served before
the next one: a write that is refused for a reason of its own costs the others little.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from sandpool.base.clock import Clock
from sandpool.base.fairness import StrideScheduler
from sandpool.base.rate_limit import TokenBucket
from sandpool.kube.pacing import Outcome, Pacer
from sandpool.kube.priority import GRACE, LABELS, PATIENCE, WEIGHTS, Priority, is_expedited
from sandpool.telemetry import families
from sandpool.telemetry.families import Family, Values

_PRIORITIES: Final = tuple(Priority)

Place = tuple[bool, int]
"""The place of a request in its lane: whether it begins something (not expedited), and its arrival number."""

MOST_PROOF: Final = 1024


def proof(early: int) -> int:
    """How many writes must have been served since a write was refused before it goes early again, having gone early this many times."""
    return MOST_PROOF if early >= MOST_PROOF.bit_length() else 1 << early


@dataclass(slots=True, eq=False)
class RefusedWrite:
    """A write that the server refused, in its pause before the next try."""

    place: Place
    proven: int  # total of served writes from which on it may go early
    granted: asyncio.Future[None]  # done: it goes early, and holds a place


class RefusedWrites:
    """The refused writes of one priority that pause before the next try."""

    __slots__ = ("_resting",)

    def __init__(self) -> None:
        self._resting: list[RefusedWrite] = []

    def __len__(self) -> int:
        return len(self._resting)

    def add(self, refused: RefusedWrite) -> None:
        self._resting.append(refused)

    def remove(self, refused: RefusedWrite) -> None:
        """Its pause is over. A write that was sent early has been removed already."""
        if refused in self._resting:
            self._resting.remove(refused)

    def take(self, before: Place, served: int) -> RefusedWrite | None:
        """Removes and returns the refused write to send instead of a write of this place, if any. `served`: total of served writes."""
        able = (refused for refused in self._resting if refused.place < before and served >= refused.proven)
        first = min(able, key=lambda refused: refused.place, default=None)
        if first is not None:
            self._resting.remove(first)
        return first


class _Waiting:
    """The waiting requests of one lane, in order. Those that gave up are skipped when it is their turn."""

    __slots__ = ("heap", "left")

    def __init__(self) -> None:
        self.heap: list[tuple[Place, float, asyncio.Future[None]]] = []  # place, since when, and what it waits for
        self.left = 0  # how many in the heap still wait

    def add(self, place: Place, since: float, granted: asyncio.Future[None]) -> None:
        heapq.heappush(self.heap, (place, since, granted))
        self.left += 1

    def first(self) -> tuple[Place, float] | None:
        """The next request, and since when it has waited."""
        heap = self.heap
        while heap and heap[0][2].done():
            heapq.heappop(heap)
        return heap[0][:2] if heap else None

    def grant(self) -> None:
        heapq.heappop(self.heap)[2].set_result(None)
        self.left -= 1


class PriorityGate:
    """Bounds writes in flight. Pass it with `enter`; a write gives its place back with `leave`. With a `pacer`, `width` is only the upper bound."""

    def __init__(
        self,
        clock: Clock,
        *,
        width: int = 50,
        patience: float = PATIENCE,
        grace: float = GRACE,
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
        self._in_flight = [0] * len(Priority)
        self._waiting = 0
        self._reads = tuple(_Waiting() for _ in Priority)
        self._writes = tuple(_Waiting() for _ in Priority)
        self._refused = tuple(RefusedWrites() for _ in Priority)
        self._served = 0  # writes, so far
        self._turns = StrideScheduler([WEIGHTS[priority] for priority in Priority])
        self._arrivals = count()
        self._timer: asyncio.TimerHandle | None = None
        self._pressed: list[Callable[[], bool]] = []

    def expedite_background_while(self, pressed: Callable[[], bool]) -> None:
        """Background writes take turns with urgent ones at once while `pressed` is true. Call `recheck` when it becomes true."""
        self._pressed.append(pressed)

    def recheck(self) -> None:
        """Let through what need not wait any more."""
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

    def in_lane(self, priority: Priority) -> tuple[int, int]:
        """Writes of a lane that are in flight, and requests of it that wait."""
        return self._in_flight[priority], self._reads[priority].left + self._writes[priority].left

    def enter_now(self, priority: Priority) -> bool:
        """Whether a write may be sent without waiting; if so, it has its place."""
        if self._waiting or self._flying >= self._allowed or not self._unlimited or self._refused[priority]:
            return False
        if priority and self._in_flight[0] and not self._patient_enough(priority, self._grace, 0.0):
            return False
        self._flying += 1
        self._in_flight[priority] += 1
        return True

    async def enter(self, priority: Priority, write: bool, arrival: int | None = None) -> int:
        """Wait for permission to send one request. Returns its arrival number, to be passed in again when the request is retried."""
        if arrival is None:
            arrival = next(self._arrivals)
        if self.enter_now(priority) if write else self._unlimited:
            return arrival
        queue = (self._writes if write else self._reads)[priority]
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._writes[priority].left and not self._reads[priority].left:
            self._turns.joined(priority)
        queue.add((not is_expedited(), arrival), self._clock.monotonic(), granted)
        self._waiting += 1
        self._serve()
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # permission and cancellation met: give the place back
                if write:
                    self.leave(priority)
            else:
                self._waiting -= 1
                queue.left -= 1
            raise
        return arrival

    async def enter_again(self, priority: Priority, arrival: int, early: int, wait: float) -> bool:
        """As `enter`, for a write that was refused and has left: after `wait` seconds, or earlier instead of a younger one; True in the latter case.
        `early`: how often it has gone early already."""
        loop = asyncio.get_running_loop()
        refused = RefusedWrite((not is_expedited(), arrival), self._served + proof(early), loop.create_future())
        self._refused[priority].add(refused)
        sleep = loop.create_task(self._clock.sleep(wait))
        try:
            await asyncio.wait((sleep, refused.granted), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if refused.granted.done():  # permission and cancellation met: give the place back
                self.leave(priority)
            raise
        finally:
            self._refused[priority].remove(refused)
            sleep.cancel()
        if refused.granted.done():
            return True
        await self.enter(priority, True, arrival)
        return False

    def leave(self, priority: Priority) -> None:
        """A write has been answered or given up: frees its place."""
        self._flying -= 1
        self._in_flight[priority] -= 1
        if self._waiting:
            self._serve()

    def record(self, kind: str, outcome: Outcome, sent: float, retry_after: float = 0.0, *, own: bool = False) -> None:
        """Record the outcome of a write that has not left yet; `kind` is its verb and resource. `own`: a refusal has a reason of its own."""
        pacer = self._pacer
        self._served += outcome is Outcome.SERVED
        if pacer is not None:
            now, busy = self._clock.monotonic(), 2 * self._flying >= self._allowed
            pacer.record(kind, outcome, sent=sent, now=now, busy=busy, retry_after=retry_after, own=own)
            self._allowed = min(self._width, pacer.view.allowed(now))

    def _serve(self) -> None:
        """Lets through what may go now, and sets a timer if more may go without an event."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.monotonic()
        if self._pacer is not None:
            self._allowed = min(self._width, self._pacer.view.allowed(now))
        replaced = [0] * len(Priority)  # writes instead of which another one was sent: they wait for the next time
        while self._waiting:
            ready = self._ready(now, replaced)
            if not ready or not self._bucket.take(now):
                break
            priority = Priority(self._turns.choose(ready))
            self._turns.took(priority)
            if ready[priority] and self._sent_instead(priority):
                replaced[priority] += 1
                continue
            self._waiting -= 1
            if ready[priority]:
                self._flying += 1
                self._in_flight[priority] += 1
                self._writes[priority].grant()
            else:
                self._reads[priority].grant()
        if self._waiting and (again := self._look_again(now)) > 0:
            self._timer = asyncio.get_running_loop().call_later(again, self._serve)

    def _sent_instead(self, priority: Priority) -> bool:
        """Sends an older, refused write instead of the next one of the lane, if there is one that may go. True if so."""
        head = self._writes[priority].first() if self._refused[priority] else None
        refused = None if head is None else self._refused[priority].take(head[0], self._served)
        if refused is None:
            return False
        self._flying += 1
        self._in_flight[priority] += 1
        refused.granted.set_result(None)
        return True

    def _ready(self, now: float, replaced: Sequence[int]) -> dict[Priority, bool]:
        """The lanes of which a request may go if there is a token, and whether it is a write. Of a read and a write the first to arrive
        goes: neither reads nor writes starve the other."""
        room, ready = self._flying < self._allowed, {}
        for priority in _PRIORITIES:
            read, write = self._reads[priority].first(), self._writes[priority].first() if room else None
            head = write if write is not None and (read is None or write < read) else read
            if head is None or (head is write and self._writes[priority].left <= replaced[priority]):
                continue
            patience = (
                self._patience
                if Priority.URGENT in ready
                else self._grace
                if self._in_flight[0] and head is write
                else 0.0
            )
            if not priority or self._patient_enough(priority, patience, now - head[1]):
                ready[priority] = head is write
        return ready

    def _patient_enough(self, priority: Priority, patience: float, waited: float) -> bool:
        """Whether a priority need not wait for urgent writes any more. The tolerance is for timers that fire a rounding error early."""
        if waited >= patience - 1e-9:
            return True
        return priority is Priority.BACKGROUND and any(pressed() for pressed in self._pressed)

    def _look_again(self, now: float) -> float:
        """Seconds after which a request may go even if no write leaves; 0: never."""
        held = self._pacer.view.held_until - now if self._pacer is not None else 0.0
        waits = [held, self._bucket.wait(now)]
        if self._in_flight[0]:
            waits += [head[1] + self._grace - now for queue in self._writes[1:] if (head := queue.first()) is not None]
        return min((wait for wait in waits if wait > 0), default=0.0)


def gate_metrics(gate: PriorityGate, pacer: Pacer) -> Iterable[tuple[Family, Values]]:
    """For `Metrics.show`."""
    lanes = {(label,): gate.in_lane(priority) for priority, label in LABELS.items()}
    yield families.WRITE_LIMIT, {(): gate.allowed}
    yield families.WRITES_IN_FLIGHT, {name: flying for name, (flying, _) in lanes.items()}
    yield families.WRITES_WAITING, {name: waiting for name, (_, waiting) in lanes.items()}
    yield families.WRITES_THROTTLED, {(): pacer.throttled}
    yield families.WRITE_LIMIT_LOWERED, {(cause,): times for cause, times in pacer.lowered.items()}
