"""Names being looked up: so many at once for each pod, and for all, whose tenants share them; and not for ever.

A look-up that nobody waits for any more still holds its place until it has ended, because its thread does, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from sandpool.node.network.egress.outside import Resolve
from sandpool.node.network.forbidden import Address
from sandpool.node.network.slots import AllSlots, TenantSlots

Answer = asyncio.Task[Sequence[Address]]


class Places:
    """Those of all pods, and what runs in them."""

    def __init__(self, resolve: Resolve, number: int) -> None:
        self._resolve = resolve
        self._places = AllSlots(number)
        self._running: set[Answer] = set()

    async def start(self, name: str, tenant: str) -> Answer:
        """When there is a place for it. It goes on whatever becomes of the asker."""
        place = self._places.of(tenant)
        while not place.take():
            await _free(place)
        task: Answer = asyncio.ensure_future(self._ask(name))
        self._running.add(task)
        task.add_done_callback(partial(self._ended, place))
        return task

    async def close(self) -> None:
        await _cancelled(self._running)

    async def _ask(self, name: str) -> Sequence[Address]:
        return await self._resolve(name)

    def _ended(self, place: TenantSlots, task: Answer) -> None:
        self._running.discard(task)
        place.give_back()
        _look_at(task)


async def _free(place: TenantSlots) -> None:
    """Until it is worth another try."""
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell() -> bool:
        if told.done():
            return False
        told.set_result(None)
        return True

    place.wait(tell)
    try:
        await told
    except asyncio.CancelledError:
        if told.done() and not told.cancelled():
            place.stir()
        raise


class Lookups:
    """Of one pod, or one pull."""

    def __init__(self, places: Places, number: int, seconds: float, tenant: str) -> None:
        self._tenant = tenant
        self._places = places
        self._own = asyncio.Semaphore(number)
        self._seconds = seconds
        self._waiting: set[Answer] = set()

    async def ask(self, name: str) -> Sequence[Address]:
        """OSError if there is no answer, TimeoutError (which is one) if it takes too long."""
        task: Answer = asyncio.ensure_future(self._placed(name))
        self._waiting.add(task)
        task.add_done_callback(self._ended)
        done, _ = await asyncio.wait({task}, timeout=self._seconds)
        if not done:
            task.cancel()
            raise TimeoutError(f"the name could not be looked up within {self._seconds:g} s")
        return task.result()

    async def close(self) -> None:
        await _cancelled(self._waiting)

    async def _placed(self, name: str) -> Sequence[Address]:
        await self._own.acquire()
        try:
            work = await self._places.start(name, self._tenant)
        except BaseException:
            self._own.release()
            raise
        work.add_done_callback(lambda _: self._own.release())
        return await asyncio.shield(work)

    def _ended(self, task: Answer) -> None:
        self._waiting.discard(task)
        _look_at(task)


def _look_at(task: Answer) -> None:
    """Whether or not somebody still waits: an error that nobody looks at would be complained about."""
    if not task.cancelled():
        task.exception()


async def _cancelled(tasks: set[Answer]) -> None:
    running = tuple(tasks)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
