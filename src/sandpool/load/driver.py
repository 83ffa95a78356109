"""The open-loop driver: submits each claim at its scheduled time, notices in one shared watch when it is Ready, and releases it.

Open loop: nothing that the cluster does delays the next submit. A claim that waits for a free connection is sent late, and the delay is
part of its latency. Calls in flight are bounded, separately for submits and releases. After a 429 it waits as long as the server says.

A claim that was not admitted within its timeout (no connection was free, or the server answered 429) is turned away: it has not failed, and
is not sent again. A claim that was sent and not answered, or admitted and not Ready, has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sandpool.base.clock import Clock, Timer
from sandpool.base.errors import SandpoolError
from sandpool.kube.api import EventType
from sandpool.kube.errors import ApiError, NotFound, Refused, TooManyRequests
from sandpool.kube.requests import HttpRequest
from sandpool.kube.transport import Transport
from sandpool.load.arrivals import Arrival
from sandpool.load.observed import SeenObject
from sandpool.load.record import ClaimRecord
from sandpool.load.work import Work

LONGEST_EXAMPLE = 300
NO_HINT = 0.1
"""Seconds to wait after a 429 that does not say how long."""
LOOKS = 0.01
"""Fraction of the timeout between two checks for overdue claims: each check visits all open ones."""


class Bodies(Protocol):
    """Claims, encoded before they are needed."""

    def create(self, name: str, pool: str) -> HttpRequest: ...

    def delete(self, name: str) -> HttpRequest: ...


@dataclass(slots=True)
class Tally:
    """The progress of a run."""

    planned: int = 0
    sent: int = 0
    ready: int = 0
    failed: int = 0
    released: int = 0
    throttled: int = 0
    turned_away: int = 0


class Driver:
    def __init__(
        self,
        transport: Transport,
        releases: Transport,
        bodies: Bodies,
        clock: Clock,
        work: Work,
        width: int,
        namespace: str,
    ) -> None:
        self._transport = transport
        self._releases = releases
        self._bodies = bodies
        self._clock = clock
        self._work = work
        self._namespace = namespace
        self._submitting = asyncio.Semaphore(width)
        self._releasing = asyncio.Semaphore(max(1, width // 2))
        self._open: dict[str, ClaimRecord] = {}  # neither Ready nor failed nor turned away
        self._unanswered: dict[str, float] = {}  # since when a submit is in flight, by name
        self._held: deque[ClaimRecord] = deque()  # to be released at the end
        self._dwelling: dict[str, tuple[Timer, ClaimRecord]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._using: set[asyncio.Task[None]] = set()  # of those, work in sandboxes
        self._quiet = asyncio.Event()
        self.tally = Tally()
        self.examples: dict[str, str] = {}  # the first message of each kind of error
        self.origin = 0.0

    async def drive(
        self, arrivals: Sequence[Arrival], names: Callable[[int], str], pool: str, *, again: bool = False
    ) -> list[ClaimRecord]:
        """All claims of a shape, until each is Ready or has failed. Times in the records count from `origin`: the start or, if a
        shape is repeated (`again`), that of the first time."""
        behind = self._elapsed() if again else 0.0
        records = [
            ClaimRecord(name=names(number), pool=each.pool or pool, scheduled=each.offset + behind)
            for number, each in enumerate(arrivals)
        ]
        self._open.update((record.name, record) for record in records)
        self.tally.planned += len(records)
        self._quiet.clear()
        if not again:
            self.origin = self._clock.monotonic()
        for record in records:
            wait = record.scheduled - self._elapsed()
            if wait > 0:
                await self._clock.sleep(wait)
            self._start(self._submit(record))
        await self._all_settled(records)
        return records

    async def release_all(self) -> None:
        """Releases what was kept until the end, and waits for releases in flight; also of claims whose response comes only now."""
        for timer, record in self._dwelling.values():
            timer.cancel()
            self._held.append(record)
        self._dwelling.clear()
        while self._held or self._tasks:
            while self._held:
                self._start(self._release(self._held.popleft()))
            await asyncio.wait(self._tasks)

    async def abandon(self) -> None:
        """Cancels the run: nothing more is sent."""
        for timer, _ in self._dwelling.values():
            timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def heard(self, change: EventType, claim: SeenObject, at: float) -> None:
        """Handles an event of the claims watch. Runs for every event, so it does as little as possible."""
        record = self._open.get(claim.metadata.name)
        if record is None:
            return
        if change is EventType.ADDED and not record.created:
            record.created = claim.metadata.revision
        if change is EventType.DELETED:
            self._fail(record, "deleted by somebody else")
            return
        status = claim.status
        condition = status.ready if status else None
        if condition is None:
            return
        record.reason = condition.reason
        if condition.status == "True":
            record.ready, record.served = at - self.origin, claim.metadata.revision
            record.reason = record.error = ""
            record.sandbox = status.sandbox.name if status and status.sandbox else ""
            self.tally.ready += 1
            self._settle(record)
            self._served(record)

    def _served(self, record: ClaimRecord) -> None:
        if self._work.command is not None or self._work.files is not None:
            self._start(self._use(record), self._using)
        else:
            self._dwell(record)

    def _dwell(self, record: ClaimRecord) -> None:
        dwell = self._work.dwell
        if dwell is None:
            self._held.append(record)
        elif dwell:
            self._dwelling[record.name] = (self._clock.call_later(dwell, lambda: self._dwelt(record)), record)
        else:
            self._start(self._release(record))

    def _dwelt(self, record: ClaimRecord) -> None:
        del self._dwelling[record.name]
        self._start(self._release(record))

    async def _submit(self, record: ClaimRecord) -> None:
        call = self._bodies.create(record.name, record.pool)
        while True:
            async with self._submitting:
                if self._elapsed() > record.scheduled + self._work.timeout:
                    self._turn_away(record)
                if record.name not in self._open:
                    return  # it timed out while it waited for a connection
                wait = await self._sent(record, call)
            if wait is None:
                return
            record.throttled += 1
            self.tally.throttled += 1
            if self._elapsed() + wait > record.scheduled + self._work.timeout:
                self._turn_away(record)
                return
            await self._clock.sleep(wait)

    async def _sent(self, record: ClaimRecord, call: HttpRequest) -> float | None:
        """Sends it. Returns the seconds after which to retry; None: it was answered, or the outcome is unknown."""
        now = self._unanswered[record.name] = self._elapsed()
        if record.sent is None:
            record.sent = now
            self.tally.sent += 1
        try:
            await self._transport.send(call)
            if not self._given_up(record):
                record.answered = self._elapsed()
        except TooManyRequests as busy:
            if not self._given_up(record):
                return float(busy.retry_after) if busy.retry_after else NO_HINT
        except SandpoolError as error:
            if not self._given_up(record):
                self._submit_failed(record, error)
        finally:
            del self._unanswered[record.name]
        if self._given_up(record):
            self._held.append(record)  # only now it is known to exist
        return None

    def _given_up(self, record: ClaimRecord) -> bool:
        return record.name not in self._open and record.ready is None

    def _submit_failed(self, record: ClaimRecord, error: SandpoolError) -> None:
        if record.ready is not None:
            return  # the response was lost, but the claim was served: no failure
        record.error = self._kind("create", error)
        if isinstance(error, (ApiError, Refused)):
            self._fail(record, record.error)
        # For any other error it is unknown whether it was processed: if so, the watch shows it.

    async def _use(self, record: ClaimRecord) -> None:
        """Work in the sandbox. The first failure ends it: the claim has failed and is released."""
        doing = "exec"
        try:
            if self._work.command is not None:
                async with asyncio.timeout(self._work.timeout):
                    at = await self._work.command.first_output(self._namespace, record.sandbox)
                record.first_output = at - self.origin
            doing = "files"
            if self._work.files is not None:
                began = self._elapsed()
                async with asyncio.timeout(self._work.timeout):
                    await self._work.files.round_trip(self._namespace, record.sandbox)
                record.files = self._elapsed() - began
        except (SandpoolError, OSError, TimeoutError) as error:
            record.error = self._kind(doing, error)
            self.tally.failed += 1
        self._dwell(record)

    async def _release(self, record: ClaimRecord) -> None:
        call = self._bodies.delete(record.name)
        for _ in range(10):
            async with self._releasing:
                record.release_sent = record.release_sent if record.release_sent is not None else self._elapsed()
                try:
                    await self._releases.send(call)
                    break
                except NotFound:
                    break
                except TooManyRequests as busy:
                    wait = float(busy.retry_after) if busy.retry_after else NO_HINT
                except SandpoolError as error:
                    record.error = record.error or self._kind("release", error)
                    return
            await self._clock.sleep(wait)
        record.released = self._elapsed()
        self.tally.released += 1

    async def _all_settled(self, records: Sequence[ClaimRecord]) -> None:
        last = max(record.scheduled for record in records)
        while self._open:
            now, ends = self._elapsed() - self._work.timeout, []
            for record in tuple(self._open.values()):
                since = max(last, self._since(record))
                if since <= now:
                    self._give_up(record)
                else:
                    ends.append(since)
            if not ends:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min(ends) - now, self._work.timeout * LOOKS)):
                    await self._quiet.wait()
        await self._used()

    def _since(self, record: ClaimRecord) -> float:
        """From when its timeout counts. Before it was admitted, it has not waited for a sandbox."""
        if record.answered is not None:
            return record.answered
        return self._unanswered.get(record.name, record.scheduled)

    def _give_up(self, record: ClaimRecord) -> None:
        if record.error:
            self._fail(record, record.error)
        elif record.admitted:
            self._fail(record, f"not Ready in time{f' ({record.reason})' if record.reason else ''}")
        elif record.name in self._unanswered:
            self._fail(record, "create: no answer in time")
        else:
            self._turn_away(record)

    async def _used(self) -> None:
        """Work in sandboxes is part of what is measured; releases are not waited for here."""
        while self._using:
            await asyncio.wait(self._using)

    def _kind(self, doing: str, error: Exception) -> str:
        kind = f"{doing}: {type(error).__name__}"
        self.examples.setdefault(kind, str(error)[:LONGEST_EXAMPLE])
        return kind

    def _turn_away(self, record: ClaimRecord) -> None:
        """Turns it away: it does not exist, and nothing failed; the server is past its capacity."""
        if record.name in self._open:
            record.turned_away = True
            self.tally.turned_away += 1
            self._settle(record)

    def _fail(self, record: ClaimRecord, error: str) -> None:
        if record.name in self._open:
            record.error = error
            self.tally.failed += 1
            self._settle(record)
            if record.name not in self._unanswered:  # else the task that waits for the response handles it
                self._held.append(record)  # it may exist nevertheless

    def _settle(self, record: ClaimRecord) -> None:
        self._open.pop(record.name, None)
        if not self._open:
            self._quiet.set()

    def _start(self, work: Coroutine[Any, Any, None], into: set[asyncio.Task[None]] | None = None) -> None:
        task = asyncio.get_running_loop().create_task(work)
        if into is not None:
            into.add(task)
            task.add_done_callback(into.discard)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _elapsed(self) -> float:
        return self._clock.monotonic() - self.origin
