"""The Api of a server reached over HTTP: verbs become calls, calls pass the gate and the wire, answers become objects.

It asks again only what was surely not processed (retry.py). All lanes share one set of connections: a call takes
the lane of its context (`lanes.lane_of`), refined by `sort`, unless `in_lane` gave this Api one of its own. The gate learns what became
of every write. Close it when done, or use it as a context manager. `told` hears of every call once it has ended: verb, resource, `ok` or
the error's name, seconds.
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
from sandpool.kube.api import Event, Page, Preconditions, Propagation
from sandpool.kube.calls import (
    Call,
    create_call,
    delete_call,
    get_call,
    list_call,
    patch_call,
    watch_call,
)
from sandpool.kube.config import Config
from sandpool.kube.credentials import Source, credentials_for
from sandpool.kube.errors import ApiError, Refused, TooManyRequests, Unreachable, Unreadable, Untrusted
from sandpool.kube.lanes import Lane, LaneGate, present_lane
from sandpool.kube.pacing import Outcome, Pacer
from sandpool.kube.retry import RetryPolicy, pause
from sandpool.kube.transport import Limits, Stream, Transport
from sandpool.kube.watch import WatchParser
from sandpool.model.codec import decode
from sandpool.model.metadata import NO_REVISION, Object, Revision
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)
R = TypeVar("R")
Told = Callable[[str, str, str, float], object]
Sort = Callable[[Lane, str, Resource[Any]], Lane]
"""The lane of a write: from that of its context, its verb and its resource."""
LONG: Final = 1.0
"""Seconds. An internal error that took so long is a server that could not, not one that would not."""


def _nobody(verb: str, resource: str, outcome: str, seconds: float) -> None:
    return None


def _as_it_came(lane: Lane, verb: str, resource: Resource[Any]) -> Lane:
    return lane


class HttpApi:
    def __init__(
        self,
        transport: Transport,
        gate: LaneGate,
        policy: RetryPolicy,
        clock: Clock,
        draw: Callable[[], float],
        lane: Lane | None = None,
        told: Told = _nobody,
        sort: Sort = _as_it_came,
    ) -> None:
        self._transport = transport
        self.gate = gate
        self._policy = policy
        self._clock = clock
        self._draw = draw
        self._lane = lane
        self._told = told
        self._sort = sort

    def in_lane(self, lane: Lane) -> HttpApi:
        return HttpApi(self._transport, self.gate, self._policy, self._clock, self._draw, lane, self._told, self._sort)

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        return read_object(resource, await self._call("get", resource, get_call(resource, name, namespace)))

    async def list(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        after: str = "",
    ) -> Page[T]:
        call = list_call(resource, namespace, labels, fields, limit, after)
        return read_page(resource, await self._call("list", resource, call))

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        since: Revision | None = None,
        initial: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[Event[T]]]:
        call = watch_call(resource, namespace, labels, fields, since, initial, timeout)
        stream = await self._persist("watch", resource, call, partial(self._transport.open, call, timeout))
        try:
            yield _Events(stream, WatchParser(partial(decode, resource), since or NO_REVISION))
        finally:
            stream.close()

    async def create(self, resource: Resource[T], body: T | Mapping[str, Any], namespace: str = "") -> T:
        return read_object(resource, await self._call("create", resource, create_call(resource, namespace, body)))

    async def patch(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T:
        call = patch_call(resource, name, namespace, patch)
        return read_object(resource, await self._call("patch", resource, call))

    async def patch_status(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T:
        call = patch_call(resource, name, namespace, patch, "status")
        return read_object(resource, await self._call("patch_status", resource, call))

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str = "",
        *,
        preconditions: Preconditions | None = None,
        propagation: Propagation | None = None,
        grace: int | None = None,
    ) -> T | None:
        call = delete_call(resource, name, namespace, preconditions, propagation, grace)
        return read_deleted(resource, await self._call("delete", resource, call))

    async def _call(self, verb: str, resource: Resource[Any], call: Call) -> bytes:
        return await self._persist(verb, resource, call, partial(self._transport.send, call))

    async def _persist(self, verb: str, resource: Resource[Any], call: Call, attempt: Callable[[], Awaitable[R]]) -> R:
        """Make the call until it is processed or there is no point. No place is held while it pauses."""
        started, refusals, early, outcome, went = self._clock.monotonic(), 0, 0, "ok", False
        lane = self._lane if self._lane is not None else self._sort(present_lane(), verb, resource)
        try:
            arrival = await self.gate.enter(lane, call.writes)
            while True:
                try:
                    if call.writes:
                        return await self._learned(f"{verb} {resource.group_resource}", attempt, own=went and early > 1)
                    return await attempt()
                except (TooManyRequests, Refused) as error:
                    refusals += 1
                    wait = self._pause(call, error, refusals - early, self._clock.monotonic() - started)
                    if wait is None:
                        raise
                finally:
                    if call.writes:
                        self.gate.leave(lane)
                if call.writes:
                    went = await self.gate.enter_again(lane, arrival, early, wait)
                    early += went
                else:
                    await self._clock.sleep(wait)
                    await self.gate.enter(lane, False, arrival)
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self._told(verb, resource.group_resource, outcome, self._clock.monotonic() - started)

    def _pause(self, call: Call, error: TooManyRequests | Refused, tries: int, elapsed: float) -> float | None:
        """What went before its time, instead of another one, is no try. Only a write has a place in line to lose by giving up."""
        policy = self._policy if call.writes else replace(self._policy, throttled=0.0)
        return pause(policy, error, tries, elapsed, self._draw())

    async def _learned(self, kind: str, attempt: Callable[[], Awaitable[R]], *, own: bool) -> R:
        """One write, of whose end the gate learns. `own`: others were served while it was refused, again and again."""
        sent = self._clock.monotonic()
        try:
            answer = await attempt()
        except Exception as error:
            judged = judge(error, self._clock.monotonic() - sent)
            if judged is not None:
                self.gate.learn(kind, judged, sent, float(getattr(error, "retry_after", None) or 0), own=own)
            raise
        self.gate.learn(kind, Outcome.SERVED, sent)
        return answer


def judge(error: Exception, seconds: float) -> Outcome | None:
    """What an answer that is not success says about how busy the server is. None: nothing, it is about the request."""
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
    """The events of one watch, in order; then its end, or what ended it."""

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
    told: Told = _nobody,
    sort: Sort = _as_it_came,
) -> HttpApi:
    """An Api for the server of `config`. Nothing is sent yet. `draw` gives numbers from [0, 1), for jitter. Writes in flight are
    at most `width`; with a `pacer` they are as many as the server answers well."""
    source: Source = credentials_for(config, clock, env)
    gate = LaneGate(clock, width=width, bucket=TokenBucket(qps, burst), pacer=pacer)
    return HttpApi(Transport(config.cluster, source, limits), gate, policy, clock, draw, told=told, sort=sort)
