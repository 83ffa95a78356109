"""The Api of a server over HTTP: calls become requests, requests pass the priority gate, answers become objects.

It retries only calls that were certainly not processed (retry.py). All priorities share one set of connections: a call has
the priority of its context, refined by `sort`, unless `with_priority` gave this Api one of its own. The gate learns the outcome
of every write. Close it when done, or use it as a context manager. `called` is called after every call with its verb, resource,
`ok` or the error's name, and seconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar

from sandpool.base.clock import Clock
from sandpool.base.rate_limit import TokenBucket
from sandpool.kube.answers import read_deleted, read_object, read_page
from sandpool.kube.api import Api, Call, Event, Verb
from sandpool.kube.config import Config
from sandpool.kube.credentials import Source, credentials_for
from sandpool.kube.errors import ApiError, Refused, TooManyRequests, Unreachable, Unreadable, Untrusted
from sandpool.kube.pacing import Outcome, Pacer
from sandpool.kube.priority import Priority, current_priority
from sandpool.kube.priority_gate import PriorityGate
from sandpool.kube.requests import HttpRequest, request_of
from sandpool.kube.retry import RetryPolicy, pause
from sandpool.kube.transport import Limits, Stream, Transport
from sandpool.kube.watch import WatchParser
from sandpool.model.codec import decode
from sandpool.model.metadata import NO_REVISION, Object
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)
R = TypeVar("R")
Called = Callable[[str, str, str, float], object]
Sort = Callable[[Priority, str, Resource[Any]], Priority]
"""The priority of a write: from that of its context, its verb and its resource."""
LONG: Final = 1.0
"""Seconds. An internal error (500) that took this long means an overloaded server, not a rejected request."""


def _ignore(verb: str, resource: str, outcome: str, seconds: float) -> None:
    return None


def _unchanged(priority: Priority, verb: str, resource: Resource[Any]) -> Priority:
    return priority


class HttpApi(Api):
    """An Api over HTTP. Close it when done."""

    def __init__(
        self,
        transport: Transport,
        gate: PriorityGate,
        policy: RetryPolicy,
        clock: Clock,
        draw: Callable[[], float],
        priority: Priority | None = None,
        called: Called = _ignore,
        sort: Sort = _unchanged,
    ) -> None:
        self._transport = transport
        self.gate = gate
        self._policy = policy
        self._clock = clock
        self._draw = draw
        self._priority = priority
        self._called = called
        self._sort = sort

    def with_priority(self, priority: Priority) -> HttpApi:
        return HttpApi(
            self._transport, self.gate, self._policy, self._clock, self._draw, priority, self._called, self._sort
        )

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, call: Call) -> Any:
        request = request_of(call)
        body = await self._persist(call, request, partial(self._transport.send, request))
        if call.verb is Verb.LIST:
            return read_page(call.resource, body)
        if call.verb is Verb.DELETE:
            return read_deleted(call.resource, body)
        return read_object(call.resource, body)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[Event[Any]]]:
        request, options = request_of(call), call.list_options
        stream = await self._persist(call, request, partial(self._transport.open, request, options.timeout))
        try:
            yield _Events(stream, WatchParser(partial(decode, call.resource), options.since or NO_REVISION))
        finally:
            stream.close()

    async def _persist(self, call: Call, request: HttpRequest, attempt: Callable[[], Awaitable[R]]) -> R:
        """Retry the call until it is processed or retrying is pointless. It holds no place in the gate while it pauses."""
        verb, resource = call.verb, call.resource
        started, refusals, early, outcome, went = self._clock.monotonic(), 0, 0, "ok", False
        priority = self._priority if self._priority is not None else self._sort(current_priority(), verb, resource)
        try:
            arrival = await self.gate.enter(priority, request.writes)
            while True:
                try:
                    if request.writes:
                        return await self._learned(f"{verb} {resource.group_resource}", attempt, own=went and early > 1)
                    return await attempt()
                except (TooManyRequests, Refused) as error:
                    refusals += 1
                    wait = self._pause(request, error, refusals - early, self._clock.monotonic() - started)
                    if wait is None:
                        raise
                finally:
                    if request.writes:
                        self.gate.leave(priority)
                if request.writes:
                    went = await self.gate.enter_again(priority, arrival, early, wait)
                    early += went
                else:
                    await self._clock.sleep(wait)
                    await self.gate.enter(priority, False, arrival)
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self._called(verb, resource.group_resource, outcome, self._clock.monotonic() - started)

    def _pause(
        self, request: HttpRequest, error: TooManyRequests | Refused, tries: int, elapsed: float
    ) -> float | None:
        """Seconds to pause before a retry; None: give up. `tries` does not count writes that were sent early instead of another one. Reads have no place in
        a queue to lose, so they give up sooner."""
        policy = self._policy if request.writes else replace(self._policy, throttled=0.0)
        return pause(policy, error, tries, elapsed, self._draw())

    async def _learned(self, kind: str, attempt: Callable[[], Awaitable[R]], *, own: bool) -> R:
        """One write, whose outcome is recorded in the gate. `own`: it was refused repeatedly while others were served."""
        sent = self._clock.monotonic()
        try:
            answer = await attempt()
        except Exception as error:
            judged = judge(error, self._clock.monotonic() - sent)
            if judged is not None:
                self.gate.record(kind, judged, sent, float(getattr(error, "retry_after", None) or 0), own=own)
            raise
        self.gate.record(kind, Outcome.SERVED, sent)
        return answer


def judge(error: Exception, seconds: float) -> Outcome | None:
    """What an error says about how busy the server is. None: nothing, it is about the request."""
    if isinstance(error, TooManyRequests):
        return Outcome.THROTTLED
    if isinstance(error, (Untrusted, Unreadable)):
        return None
    if isinstance(error, Unreachable):
        return Outcome.FAILED
    if isinstance(error, ApiError) and (error.code in (503, 504) or (error.code >= 500 and seconds >= LONG)):
        return Outcome.FAILED
    return None


class _Events(Generic[T]):
    """The events of one watch, in order, until it ends or fails."""

    def __init__(self, stream: Stream, parser: WatchParser[T]) -> None:
        self._stream = stream
        self._parser = parser
        self._ready: list[Event[T]] = []  # newest first, so that taking one is a pop
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event[T]:
        while not self._ready:
            if self._parser.failure is not None:
                raise self._parser.failure
            if self._over:
                raise StopAsyncIteration
            chunk = await self._stream.chunk()
            if chunk:
                self._ready = self._parser.feed(chunk)
                self._ready.reverse()
            else:
                self._over = True
                self._parser.end()
        return self._ready.pop()


def connect(
    config: Config,
    *,
    clock: Clock,
    draw: Callable[[], float],
    env: Mapping[str, str],
    limits: Limits = Limits(),
    policy: RetryPolicy = RetryPolicy(),
    qps: float = 0,
    burst: int = 1,
    width: int = 50,
    pacer: Pacer | None = None,
    called: Called = _ignore,
    sort: Sort = _unchanged,
) -> HttpApi:
    """An Api for the server of `config`. Nothing is sent yet. `draw` gives numbers from [0, 1), for jitter. Writes in flight are
    at most `width`; with a `pacer` they are as many as the server answers well."""
    source: Source = credentials_for(config, clock, env)
    gate = PriorityGate(clock, width=width, bucket=TokenBucket(qps, burst), pacer=pacer)
    return HttpApi(Transport(config.cluster, source, limits), gate, policy, clock, draw, called=called, sort=sort)
