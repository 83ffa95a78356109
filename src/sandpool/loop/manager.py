"""Starts the parts of a process in order and stops them in reverse.

Start: reflectors, then all caches filled (within a deadline), then leadership, then `prepare`, then controllers. Stop: controllers finish
what waits, then the reflectors end, then the lease is released. A part that fails, or ends by itself, stops the whole, and
`run` raises its error. Losing the lease does not wait for anything: nothing may be written any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sandpool.base.errors import SandpoolError
from sandpool.loop.controller import Controller
from sandpool.loop.errors import NotSynced
from sandpool.loop.lease import Elector
from sandpool.loop.lifetimes import beside_all, first_error
from sandpool.loop.reflector import Reflector
from sandpool.telemetry.log import logger

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Time limits, in seconds."""

    synced: float = 60.0  # from the start until every cache is filled
    drained: float = 30.0  # from the stop until every controller is done


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a process."""

    reflectors: Sequence[Reflector[Any]] = ()
    controllers: Sequence[Controller[Any]] = ()
    elector: Elector | None = None
    services: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """Whatever else runs from start to end, such as an event recorder or a metrics endpoint; stopped last."""
    prepare: Callable[[], Awaitable[None]] | None = None
    """Awaited as leader before the controllers start, for instance to bring caches up to date."""


class Manager:
    """Runs the parts until `stop` is set or one of them fails."""

    def __init__(self, parts: Parts, deadlines: Deadlines = Deadlines()) -> None:
        self.ready = asyncio.Event()  # the controllers are at work
        self._parts = parts
        self._deadlines = deadlines

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set, or raises the error of the first part that failed."""
        parts = self._parts
        try:
            async with (
                beside_all([("a service", service()) for service in parts.services]),
                _released(parts.elector),
                beside_all([(f"the reflector of {reflector.name}", reflector.run()) for reflector in parts.reflectors]),
            ):
                if await _unless(stop, self._start()):
                    async with beside_all([("the lease", parts.elector.hold())] if parts.elector else []):
                        if await _unless(stop, self._prepare()):
                            await self._work(stop)
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors
        finally:
            self.ready.clear()

    async def _start(self) -> None:
        await self._sync()
        if self._parts.elector is not None:
            await self._parts.elector.acquire()

    async def _prepare(self) -> None:
        """Runs while the lease is being renewed: it may take longer than a lease lasts."""
        if self._parts.prepare is not None:
            await self._parts.prepare()

    async def _sync(self) -> None:
        reflectors = self._parts.reflectors
        try:
            async with asyncio.timeout(self._deadlines.synced):
                for reflector in reflectors:
                    await reflector.cache.synced.wait()
        except TimeoutError:
            late = [reflector for reflector in reflectors if not reflector.cache.synced.is_set()]
            named = "; ".join(f"{reflector.name} ({_why(reflector)})" for reflector in late)
            raise NotSynced(
                f"not filled within {self._deadlines.synced:g} s: the cache of {named}. "
                "Check that the API server answers and that this identity may list and watch the resource"
            ) from None
        log.info("caches filled", count=len(reflectors))

    async def _work(self, stop: asyncio.Event) -> None:
        """Runs the controllers until `stop`, and then until they have finished what waits, within the deadline."""
        limit = asyncio.timeout(None)
        try:
            async with limit, asyncio.TaskGroup() as workers:
                for controller in self._parts.controllers:
                    workers.create_task(_until(stop, controller), name=controller.name)
                self.ready.set()
                await stop.wait()
                self.ready.clear()
                limit.reschedule(asyncio.get_running_loop().time() + self._deadlines.drained)
                for controller in self._parts.controllers:
                    controller.stop()
        except TimeoutError:
            if not limit.expired():
                raise
            log.warning("controllers cut off", after=self._deadlines.drained)


@asynccontextmanager
async def _released(elector: Elector | None) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if elector is not None:
            await elector.release()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Does the work, but not past `stop`. True if it was finished."""
    async with asyncio.TaskGroup() as group:
        working, stopping = group.create_task(work), group.create_task(stop.wait())
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        finished = working.done()
        working.cancel()
        stopping.cancel()
    return finished


async def _until(stop: asyncio.Event, controller: Controller[Any]) -> None:
    await controller.run()
    if not stop.is_set():
        raise SandpoolError(f"controller {controller.name} ended by itself; it should run until the manager stops it")


def _why(reflector: Reflector[Any]) -> str:
    trouble = reflector.trouble
    return "no answer yet" if trouble is None else f"{type(trouble).__name__}: {trouble}"
