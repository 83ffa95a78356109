"""A watch that is late, breaks, repeats itself and forgets, by dice. Within one watch the order stays, as on any server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from random import Random
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from sandpool.kube.api import Event, EventType
from sandpool.kube.errors import Gone, Unreachable
from sandpool.model.metadata import Object, Revision
from sandpool.simulation.faults import Fault, Faults

T = TypeVar("T", bound=Object)
_STALL = 8.0
"""Seconds that an event is held back at most."""


class Receiver(Protocol):
    cut: bool
    newest: Revision


class Watching(Generic[T]):
    def __init__(
        self,
        inner: AbstractAsyncContextManager[AsyncIterator[Event[T]]],
        line: Receiver,
        faults: Faults,
        latency: Random,
        pace: float,
    ) -> None:
        self._inner = inner
        self._line = line
        self._faults = faults
        self._latency = latency
        self._pace = pace
        self._events: AsyncIterator[Event[T]]
        self._told: deque[Event[T]] = deque(maxlen=6)
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
        if self._told and faults.strikes(Fault.DUPLICATED):
            self._again = self._told[self._latency.randrange(len(self._told))]
        self._told.append(event)
        if event.revision < self._line.newest:
            faults.happened(Fault.REORDERED)
        else:
            self._line.newest = event.revision

    def _check(self) -> None:
        if self._line.cut:
            raise asyncio.CancelledError("the process is dead")
