"""An Api that fails on purpose: a chosen call is refused, waits, or loses its answer. A wrapper of the port.

faulty = FaultyApi(api)
faulty.on("patch", "sandboxes").refuse(Conflict("moved on"))          # the first such call
faulty.on("create", "pods", skip=2, times=3).lose()                   # happens, but nobody hears of it
faulty.on("delete").hold(event)                                       # waits before it is made
faulty.on("watch", "sandboxes").break_after(3)                        # the stream breaks after three events
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Api, Call, Event
from sandpool.kube.errors import Unreachable
from sandpool.kube.interceptors import Interceptor
from sandpool.model.metadata import Object

T = TypeVar("T", bound=Object)


class Fault:
    """What happens to the calls that fit. Without an order it does nothing."""

    def __init__(self, verb: str, resource: str, name: str, skip: int, times: int) -> None:
        self.verb, self.resource, self.name = verb, resource, name
        self.skip, self.times = skip, times
        self.met = 0  # how many calls it has befallen
        self.events: int | None = None  # for watches: how many are delivered
        self._error: SandpoolError | None = None
        self._lost: SandpoolError | None = None
        self._before: Callable[[], Awaitable[object]] | None = None
        self._after: Callable[[], Awaitable[object]] | None = None

    def refuse(self, error: SandpoolError) -> Fault:
        """Not made at all."""
        self._error = error
        return self

    def lose(self, error: SandpoolError | None = None) -> Fault:
        """Made, and its answer lost."""
        self._lost = error or Unreachable("the answer was lost on purpose")
        return self

    def hold(self, until: asyncio.Event) -> Fault:
        """Made only once `until` is set."""
        self._before = until.wait
        return self

    def hold_answer(self, until: asyncio.Event) -> Fault:
        """Made at once, answered once `until` is set."""
        self._after = until.wait
        return self

    def delay(self, seconds: float) -> Fault:
        """Made after a while of the event loop's time: for tests in virtual time."""
        self._before = lambda: asyncio.sleep(seconds)
        return self

    def break_after(self, events: int, error: SandpoolError | None = None) -> Fault:
        """For watches: the stream breaks after so many events."""
        self.events = events
        return self.lose(error or Unreachable("the watch was broken on purpose"))

    def befalls(self, verb: str, resource: str, name: str) -> bool:
        if self.verb not in ("", verb) or self.resource not in ("", resource) or self.name not in ("", name):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.met >= self.times:
            return False
        self.met += 1
        return True

    async def before(self) -> None:
        if self._before is not None:
            await self._before()
        if self._error is not None:
            raise self._error

    async def after(self) -> None:
        if self._after is not None:
            await self._after()
        if self._lost is not None:
            raise self._lost


class FaultyApi(Interceptor):
    def __init__(self, inner: Api) -> None:
        super().__init__(inner)
        self.faults: list[Fault] = []

    def on(self, verb: str = "", resource: str = "", name: str = "", *, skip: int = 0, times: int = 1) -> Fault:
        """A fault for the calls that fit (an empty word fits all), after `skip` of them, `times` times."""
        fault = Fault(verb, resource, name, skip, times)
        self.faults.append(fault)
        return fault

    async def send(self, call: Call) -> Any:
        fault = self._fault(call)
        if fault is None:
            return await self.inner.send(call)
        await fault.before()
        result = await self.inner.send(call)
        await fault.after()
        return result

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[Event[Any]]]:
        fault = self._fault(call)
        if fault is not None:
            await fault.before()
        async with self.inner.stream(call) as events:
            yield UntilBroken(events, fault) if fault is not None and fault.events is not None else events

    def _fault(self, call: Call) -> Fault | None:
        asked = call.verb, call.resource.plural, call.object_name
        return next((fault for fault in self.faults if fault.befalls(*asked)), None)


class UntilBroken(AsyncIterator[Event[T]]):
    """The events of a watch up to the fault."""

    def __init__(self, events: AsyncIterator[Event[T]], fault: Fault) -> None:
        self._events, self._fault = events, fault
        self._left = fault.events or 0

    async def __anext__(self) -> Event[T]:
        if self._left == 0:
            await self._fault.after()
        self._left -= 1
        return await self._events.__anext__()
