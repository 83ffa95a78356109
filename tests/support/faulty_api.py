"""An Api that fails on purpose: a chosen call is refused, waits, or loses its answer. A wrapper of the port.

faulty = FaultyApi(api)
faulty.on("patch", "sandboxes").refuse(Conflict("moved on"))          # the first such call
faulty.on("create", "pods", skip=2, times=3).lose()                   # happens, but nobody hears of it
faulty.on("delete").hold(event)                                       # waits before it is made
faulty.on("watch", "sandboxes").break_after(3)                        # the stream breaks after three events
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Api, Event, Page, Preconditions, Propagation
from sandpool.kube.errors import Unreachable
from sandpool.model.metadata import Object, Revision
from sandpool.model.patches import Patch
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)
R = TypeVar("R")


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


class FaultyApi:
    def __init__(self, inner: Api) -> None:
        self.inner = inner
        self.faults: list[Fault] = []

    def on(self, verb: str = "", resource: str = "", name: str = "", *, skip: int = 0, times: int = 1) -> Fault:
        """A fault for the calls that fit (an empty word fits all), after `skip` of them, `times` times."""
        fault = Fault(verb, resource, name, skip, times)
        self.faults.append(fault)
        return fault

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        return await self._try("get", resource, name, lambda: self.inner.get(resource, name, namespace))

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
        def ask() -> Awaitable[Page[T]]:
            return self.inner.list(resource, namespace, labels=labels, fields=fields, limit=limit, after=after)

        return await self._try("list", resource, "", ask)

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
        fault = self._fault("watch", resource, "")
        if fault is not None:
            await fault.before()
        async with self.inner.watch(
            resource, namespace, labels=labels, fields=fields, since=since, initial=initial, timeout=timeout
        ) as events:
            yield UntilBroken(events, fault) if fault is not None and fault.events is not None else events

    async def create(self, resource: Resource[T], body: T | Mapping[str, Any], namespace: str = "") -> T:
        metadata: Any = (body.get("metadata") or {}) if isinstance(body, Mapping) else body.metadata
        name = metadata.get("name", "") if isinstance(metadata, Mapping) else metadata.name
        return await self._try("create", resource, name, lambda: self.inner.create(resource, body, namespace))

    async def patch(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T:
        return await self._try("patch", resource, name, lambda: self.inner.patch(resource, name, patch, namespace))

    async def patch_status(self, resource: Resource[T], name: str, patch: Patch, namespace: str = "") -> T:
        def ask() -> Awaitable[T]:
            return self.inner.patch_status(resource, name, patch, namespace)

        return await self._try("patch_status", resource, name, ask)

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
        def ask() -> Awaitable[T | None]:
            return self.inner.delete(
                resource, name, namespace, preconditions=preconditions, propagation=propagation, grace=grace
            )

        return await self._try("delete", resource, name, ask)

    def _fault(self, verb: str, resource: Resource[Any], name: str) -> Fault | None:
        return next((fault for fault in self.faults if fault.befalls(verb, resource.plural, name)), None)

    async def _try(self, verb: str, resource: Resource[Any], name: str, ask: Callable[[], Awaitable[R]]) -> R:
        fault = self._fault(verb, resource, name)
        if fault is None:
            return await ask()
        await fault.before()
        result = await ask()
        await fault.after()
        return result


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
