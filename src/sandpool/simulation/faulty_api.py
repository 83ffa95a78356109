"""The Api of one leader, with seeded faults in every call and watch.

A call may be refused, wait, happen and lose its answer, or take effect after its caller has died. A watch is late, breaks, repeats events and
forgets; within one watch the order stays, as on any server. Once the Api is cut off (a crash) no call reaches the world any more, not even
from a `finally`; what was already on its way still may.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Generic, TypeVar

from sandpool.base.errors import SandpoolError
from sandpool.kube.api import WRITES, Api, Call, Event, EventType, Verb
from sandpool.kube.errors import (
    Conflict,
    Gone,
    InternalError,
    Refused,
    ServerTimeout,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from sandpool.model.metadata import Object, Revision
from sandpool.model.resource import Resource
from sandpool.simulation.faults import Fault, Faults
from sandpool.simulation.steps import Author, of_leader, writing
from sandpool.simulation.world import World

R = TypeVar("R")

_BEFORE: tuple[tuple[Fault, Callable[[], SandpoolError]], ...] = (
    (Fault.INTERNAL, lambda: InternalError("something went wrong")),
    (Fault.TOO_MANY, lambda: TooManyRequests("too many requests", retry_after=1)),
    (Fault.UNAVAILABLE, lambda: Unavailable("the server is not ready")),
    (Fault.TIMEOUT, lambda: ServerTimeout("the request timed out")),
    (Fault.REFUSED, lambda: Refused("connection refused")),
)
_AFTER: tuple[tuple[Fault, Callable[[], SandpoolError]], ...] = (
    (Fault.LOST, lambda: Unreachable("the connection broke before the answer")),
    (Fault.TIMEOUT_AFTER, lambda: ServerTimeout("the request timed out")),
    (Fault.INTERNAL_AFTER, lambda: InternalError("something went wrong afterwards")),
)
_LONGEST = 12.0
"""Seconds that a slow call takes at most."""


class FaultyApi(Api):
    """`asked` is called with every write before it is sent, and its author: an invariant may record what its leader knew then.
    `answered` is called with the answers that reach the leader. `cut`: the process has crashed."""

    def __init__(
        self,
        world: World,
        leader: str,
        faults: Faults,
        latency: Random,
        pace: float,
        crash: Callable[[], object],
        asked: Callable[[Author, str, Resource[Any], str, str], object],
        answered: Callable[[Author, str, object], object],
    ) -> None:
        self.cut = False
        self.newest = Revision(0)  # that any of its watches has delivered
        self._world = world
        self._api: Api = world.api
        self._leader = leader
        self._faults = faults
        self._latency = latency
        self._pace = pace
        self._crash = crash
        self._asked = asked
        self._answered = answered

    async def send(self, call: Call) -> Any:
        make = partial(self._api.send, call)
        if call.verb not in WRITES:
            return await self._call(make)
        self._check()
        who = of_leader(self._leader, self._world.clock.monotonic())
        self._asked(who, call.verb, call.resource, call.name, call.namespace)
        with writing(who):
            if call.verb is not Verb.CREATE and self._faults.strikes(Fault.CONFLICT):
                await self._wait()
                raise Conflict("the object has been modified; please apply your changes to the latest version")
            answer = await self._call(make)
        self._answered(who, call.verb, answer)
        return answer

    def stream(self, call: Call) -> FaultyWatch[Any]:
        return FaultyWatch(self._api.stream(call), self, self._faults, self._latency, self._pace)

    async def _call(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        self._check()
        if self._faults.strikes(Fault.CRASH_IN_CALL):
            return await self._dying(make)
        if self._faults.strikes(Fault.SLOW):
            answer = await self._slowly(make)
        else:
            await self._wait()
            for fault, error in _BEFORE:
                if self._faults.strikes(fault):
                    if fault is Fault.TIMEOUT:  # a timeout takes a while
                        await self._wait(self._some_time())
                    raise error()
            answer = await make()
            if self._latency.random() < 0.5:
                await self._wait()
        self._check()
        for fault, error in _AFTER:
            if self._faults.strikes(fault):
                raise error()
        return answer

    async def _slowly(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """A call that takes long. It takes effect even if its caller stops waiting or dies."""
        landing = self._world.spawn(self._land(make, self._some_time()))
        made, error = await asyncio.shield(landing)
        if error is not None:
            raise error
        answer: R = made
        return answer

    async def _land(
        self, make: Callable[[], Coroutine[Any, Any, R]], wait: float
    ) -> tuple[R | None, BaseException | None]:
        await asyncio.sleep(wait)
        if self.cut:
            self._faults.happened(Fault.LATE)
        try:
            return await make(), None
        except SandpoolError as error:
            return None, error

    async def _dying(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """The process dies while this call is under way: before it was sent, on its way, or before the answer came."""
        moment = self._latency.random()
        if moment < 0.3:
            self._crash()
        elif moment < 0.6:
            self._world.spawn(self._land(make, self._some_time()))
            self._crash()
        else:
            try:
                await make()
            finally:
                self._crash()
        raise asyncio.CancelledError("the process died")

    async def _wait(self, longer: float = 0.0) -> None:
        """Every call takes some time: otherwise two leaders that disagree could go on for ever at one instant."""
        await asyncio.sleep((0.1 + self._latency.random()) * self._pace + longer)
        self._check()

    def _some_time(self) -> float:
        """Seconds, mostly few."""
        return self._latency.random() ** 3 * _LONGEST

    def _check(self) -> None:
        if self.cut:
            raise asyncio.CancelledError("the process is dead")


T = TypeVar("T", bound=Object)
_STALL = 8.0
"""Seconds that an event is held back at most."""


class FaultyWatch(Generic[T]):
    """A watch of a FaultyApi."""

    def __init__(
        self,
        inner: AbstractAsyncContextManager[AsyncIterator[Event[T]]],
        api: FaultyApi,
        faults: Faults,
        latency: Random,
        pace: float,
    ) -> None:
        self._inner = inner
        self._api = api
        self._faults = faults
        self._latency = latency
        self._pace = pace
        self._events: AsyncIterator[Event[T]]
        self._delivered: deque[Event[T]] = deque(maxlen=6)
        self._again: Event[T] | None = None

    async def __aenter__(self) -> AsyncIterator[Event[T]]:
        self._check()
        self._events = await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)

    def __aiter__(self) -> AsyncIterator[Event[T]]:
        return self

    async def __anext__(self) -> Event[T]:
        if self._again is not None:
            event, self._again = self._again, None
            return event
        event = await anext(self._events)
        self._check()
        if self._faults.on and event.type is not EventType.BOOKMARK:
            await self._trouble(event)
        return event

    async def _trouble(self, event: Event[T]) -> None:
        faults = self._faults
        if faults.strikes(Fault.DELAYED):
            await asyncio.sleep(self._latency.random() ** 4 * _STALL)
        elif self._pace > 0 and self._latency.random() < 0.3:
            await asyncio.sleep(self._latency.random() * self._pace)
        self._check()
        if faults.strikes(Fault.DROPPED):
            if self._latency.random() < 0.5:
                raise Unreachable("the watch broke")
            raise StopAsyncIteration
        if faults.strikes(Fault.GONE):
            raise Gone("too old resource version")
        if self._delivered and faults.strikes(Fault.DUPLICATED):
            self._again = self._delivered[self._latency.randrange(len(self._delivered))]
        self._delivered.append(event)
        if event.revision < self._api.newest:
            faults.happened(Fault.REORDERED)
        else:
            self._api.newest = event.revision

    def _check(self) -> None:
        if self._api.cut:
            raise asyncio.CancelledError("the process is dead")
