"""WATCH: sends events as lines of JSON, joined from stored bytes, until the client disconnects, the timeout ends or the server stops.

Nothing is queued per watcher: each has a position in the shared history. A client that does not read blocks only its own watch; when it has
fallen too far behind, the history no longer has its position, and it gets 410.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from sandpool.base.shares import Decision, Revoke, Shares
from sandpool.base.turns import BYTES, EACH
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.exchange import LARGE, Exchange
from sandpool.controlplane.apiserver.fairness import LONG_SELECTOR, SHORT_LIST, ResponseBudget
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.query import integer, watch_query
from sandpool.controlplane.apiserver.render import event_shape
from sandpool.controlplane.apiserver.response import JSON_LINES, PIECE, Response
from sandpool.controlplane.objects.objects import Objects, RawEvent, RawWatch
from sandpool.controlplane.objects.options import WatchQuery
from sandpool.kube.api import EventType
from sandpool.kube.errors import ApiError, Gone, TooManyRequests
from sandpool.telemetry.metrics import Metrics

MANY: Final = 64
"""If a tenant has more watches than this, each further one matches changes in turns of the tenant."""

Shape = Callable[[bytes], bytes]
Send = Callable[[bytes], Awaitable[None]]

_HEADS: Final = {kind: f'{{"type":"{kind.value}","object":'.encode() for kind in EventType}
_TAIL: Final = b"}\n"


BEGIN: Final = 4
"""The cost of an initial event, relative to that of finding its object."""


class Watches:
    """All watches of one server: counts them by tenant and ends them at shutdown."""

    def __init__(
        self,
        objects: Objects,
        limits: Limits,
        metrics: Metrics,
        sending: ResponseBudget,
        now: Callable[[], datetime],
        dice: Callable[[], float],
    ) -> None:
        self._objects = objects
        self._limits = limits
        self._metrics = metrics
        self.sending = sending
        self._now = now
        self._dice = dice
        self.shares = Shares(limits.watches)
        self._ends: dict[str, dict[asyncio.Future[None], None]] = {}  # by tenant, the oldest first
        self._closing = False

    async def watch(self, call: Call) -> Response:
        form, query = call.form, watch_query(call.params)
        shape = event_shape(form, call.resource, call.params, self._now)
        seconds = integer(call.params, "timeoutSeconds")
        tenant = call.user.tenant
        if not query.since or query.initial:  # it begins with a list
            work = BEGIN * self._objects.list_work(call.resource, call.namespace)
            if work > SHORT_LIST and not query.skip_initial:
                await self.sending.turns.take(tenant, work)
        watch = await self._selecting(call, query) if query.labels or query.fields else None
        verdict = self.shares.ask(tenant)
        if self._closing or verdict is Decision.REFUSE:
            if isinstance(watch, RawWatch):
                watch.close()
            raise TooManyRequests(self._refusal_message(tenant), retry_after=1)
        if watch is None:
            watch = self._begun(call, query)
        if isinstance(watch, RawWatch):
            for _ in watch.settling():
                pass
            if watch.pace is None and self.shares.held.get(tenant, 0) >= MANY:
                watch.pace = partial(self.sending.turns.take, tenant, EACH)
        if isinstance(watch, RawWatch) and watch.first_size > PIECE:
            try:
                self.sending.check(tenant, watch.first_size)
            except TooManyRequests:
                watch.close()
                raise
        if isinstance(verdict, Revoke):
            self._revoke(verdict.holder)
        timeout = float(seconds) if seconds is not None and seconds > 0 else self._some_time()
        every = self._limits.bookmark_every if query.bookmarks else None
        return WatchResponse(self, watch, shape, timeout, every, call.resource.group_resource, tenant)

    def _begun(self, call: Call, query: WatchQuery) -> RawWatch | Gone:
        try:
            return self._objects.watch(call.resource, call.namespace, query)
        except Gone as error:
            return error

    async def _selecting(self, call: Call, query: WatchQuery) -> RawWatch | Gone:
        """Starts a watch with a selector; matching is done in the tenant's turns."""
        turn, tenant = self.sending.turns.take, call.user.tenant
        if len(query.labels) + len(query.fields) > LONG_SELECTOR:
            await turn(tenant)
        watch = self._begun(call, query)
        if isinstance(watch, Gone):
            return watch
        try:
            for _ in watch.settling():
                await turn(tenant)
        except BaseException:
            watch.close()
            raise
        if tenant:
            watch.pace = partial(turn, tenant, BYTES // 16)
        return watch

    def _some_time(self) -> float:
        """A random timeout, so that watches that began together do not all reconnect together."""
        shortest, longest = self._limits.watch_shortest, self._limits.watch_longest
        return shortest + (longest - shortest) * self._dice()

    def _refusal_message(self, tenant: str) -> str:
        most = self._limits.watches
        if not tenant:
            return f"too many watches: this server serves at most {most} at once, please try again later"
        return (
            f'too many watches: namespace "{tenant}" has {self.shares.holds(tenant)} of the {most} that this server serves at '
            "once to all, please end some, or try again later"
        )

    def _revoke(self, tenant: str) -> None:
        """Ends the newest watch of a tenant as if its timeout had ended, so that its client may reconnect, and frees its place in
        the count at once."""
        ended = next(reversed(self._ends[tenant]))
        self._vacate(tenant, ended)
        if not ended.done():
            ended.set_result(None)

    def _vacate(self, tenant: str, ended: asyncio.Future[None]) -> None:
        mine = self._ends.get(tenant, {})
        if ended in mine:
            del mine[ended]
            if not mine:
                del self._ends[tenant]
            self.shares.take(tenant, -1)

    @contextmanager
    def seat(self, resource: str, tenant: str) -> Iterator[asyncio.Future[None]]:
        """Counts a watch while the body runs. Yields a future that resolves when the server wants the watch to end."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closing:
            ended.set_result(None)
        self._ends.setdefault(tenant, {})[ended] = None
        self.shares.take(tenant)
        gauge = self._metrics.server_watches.labels(resource)
        gauge.inc()
        try:
            yield ended
        finally:
            self._vacate(tenant, ended)
            gauge.dec()

    def end_all(self) -> None:
        """Ends every watch as if its timeout had ended, and starts no more."""
        self._closing = True
        for mine in self._ends.values():
            for ended in mine:
                if not ended.done():
                    ended.set_result(None)


class WatchResponse:
    """The response of one watch."""

    status = 200

    def __init__(
        self,
        watches: Watches,
        watch: RawWatch | Gone,
        shape: Shape | None,
        timeout: float,
        every: float | None,
        resource: str,
        tenant: str,
    ) -> None:
        self._watches = watches
        self._watch = watch
        self._shape = shape
        self._timeout = timeout
        self._every = every
        self._resource = resource
        self._tenant = tenant

    async def deliver(self, exchange: Exchange) -> None:
        watch = self._watch
        if isinstance(watch, Gone):
            await exchange.start(self.status, JSON_LINES)
            await exchange.end(error_line(watch))
            return
        try:
            with self._watches.seat(self._resource, self._tenant) as ended:
                await exchange.start(self.status, JSON_LINES)
                gone = await self._run(watch, ended, exchange)
        finally:
            watch.close()
        if not gone:
            await exchange.end()

    async def _run(self, watch: RawWatch, ended: asyncio.Future[None], exchange: Exchange) -> bool:
        """Sends events until something ends the watch. Returns whether the client disconnected."""
        async with asyncio.TaskGroup() as tasks:
            pump = tasks.create_task(self.pump(watch, exchange.piece))
            leaving = tasks.create_task(exchange.left())
            marker = tasks.create_task(self._mark(watch, exchange.piece)) if self._every is not None else None
            waited: set[asyncio.Future[None]] = {pump, leaving, ended}
            await asyncio.wait(waited, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
            gone = leaving.done()
            # The bookmark must be made while the pump waits: only then is it certain that no event before it is missing.
            last = watch.bookmark() if marker and self._sent and not gone and not pump.done() else None
            for task in (pump, leaving, marker):
                if task is not None:
                    task.cancel()
        if last is not None:  # so that a watch without events resumes from the current revision, not from its start
            await exchange.piece(b"".join(lines([last], self._shape)))
        return gone

    async def pump(self, watch: RawWatch, send: Send) -> None:
        """The hot loop: every event of every watcher passes here."""
        next_events, shape, turn = watch.next, self._shape, self._watches.sending.turns.take
        try:
            if watch.first_size:
                with self._watches.sending.holding(self._tenant, watch.first_size):
                    self._sent = False
                    for chunk in lines(await next_events(), shape):
                        if shape is not None or len(chunk) > LARGE:
                            await turn(self._tenant)
                        await send(chunk)
                        await asyncio.sleep(0)
            while True:
                self._sent = True
                events = await next_events()
                self._sent = False
                if shape is None and len(events) == 1:  # by far the most common: one change, sent as stored
                    event = events[0]
                    if len(event.value) > LARGE:
                        await turn(self._tenant)
                    await send(b"%b%b}\n" % (_HEADS[event.type], event.value))
                    continue
                read = EACH + sum([len(event.value) for event in events])
                for chunk in lines(events, shape):
                    if shape is not None or len(chunk) > LARGE:
                        await turn(self._tenant, min(read, BYTES))
                    await send(chunk)
                    await asyncio.sleep(0)  # there may be thousands, and `send` need not wait: others get their turn
        except ApiError as error:
            await send(error_line(error))

    _sent = True

    async def _mark(self, watch: RawWatch, send: Send) -> None:
        assert self._every is not None
        while True:
            await asyncio.sleep(self._every)
            if self._sent:  # a bookmark must never overtake an event that is not sent yet
                await send(b"".join(lines([watch.bookmark()], self._shape)))


def lines(events: list[RawEvent], shape: Shape | None) -> Iterator[bytes]:
    """Events as lines, joined into chunks. No chunk, and no input of a chunk, is much longer than PIECE."""
    parts: list[bytes] = []
    size = 0
    for event in events:
        value = event.value if shape is None else shape(event.value)
        parts += (_HEADS[event.type], value, _TAIL)
        size += max(len(value), len(event.value))
        if size > PIECE:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def error_line(error: ApiError) -> bytes:
    return b'{"type":"ERROR","object":' + msgspec.json.encode(error.body()) + _TAIL
