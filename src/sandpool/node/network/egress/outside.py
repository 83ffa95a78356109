"""DNS lookups and outgoing connections: the only two functions that touch the outside. Tests replace both.

Lookups are limited per pod and for all pods together, where tenants share the slots, and they time out. A lookup whose caller is gone keeps
its slot until it ends, because its thread is still running.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from ipaddress import ip_address

from sandpool.base import open_files as descriptors
from sandpool.node.network.forbidden import Address
from sandpool.node.network.slots import AllSlots, TenantSlots

Resolve = Callable[[str], Awaitable[Sequence[Address]]]
"""Resolves a name to all its addresses, in the order in which to try them. OSError if there is none."""
Connect = Callable[[Address, int], Awaitable[socket.socket]]
"""Connects to exactly this address. Returns a non-blocking socket that the caller owns. OSError if that fails."""


async def resolve(name: str) -> Sequence[Address]:
    """Calls the machine's resolver in a new daemon thread: it may hang longer than this process runs, and must not occupy the event loop's
    thread pool."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[Address]] = loop.create_future()

    def deliver(found: Sequence[Address] | OSError) -> None:
        if answer.done():
            return
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def ask() -> None:
        found: Sequence[Address] | OSError
        try:
            found = _addresses(name)
        except (OSError, ValueError) as error:
            found = error if isinstance(error, OSError) else OSError(str(error))
        try:
            loop.call_soon_threadsafe(deliver, found)
        except RuntimeError:
            pass  # the loop is closed: the result is not needed any more

    threading.Thread(target=ask, name="sandpool-lookup", daemon=True).start()
    return await answer


def _addresses(name: str) -> Sequence[Address]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(str(each[4][0])) for each in found))


async def connect(address: Address, port: int) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        if descriptors.scarce(connection.fileno()):
            raise OSError(errno.EMFILE, descriptors.limit_message())
        await asyncio.get_running_loop().sock_connect(connection, (str(address), port))
    except BaseException:
        connection.close()
        raise
    return connection


Answer = asyncio.Task[Sequence[Address]]


class LookupSlots:
    """The lookup slots of all pods, and the lookups that run in them."""

    def __init__(self, resolve: Resolve, number: int) -> None:
        self._resolve = resolve
        self._slots = AllSlots(number)
        self._running: set[Answer] = set()

    async def start(self, name: str, tenant: str) -> Answer:
        """Starts a lookup when a slot is free. It continues even if the caller is cancelled."""
        slot = self._slots.of(tenant)
        while not slot.take():
            await _free(slot)
        task: Answer = asyncio.ensure_future(self._ask(name))
        self._running.add(task)
        task.add_done_callback(partial(self._ended, slot))
        return task

    async def close(self) -> None:
        await _cancelled(self._running)

    async def _ask(self, name: str) -> Sequence[Address]:
        return await self._resolve(name)

    def _ended(self, slot: TenantSlots, task: Answer) -> None:
        self._running.discard(task)
        slot.give_back()
        _retrieve_error(task)


async def _free(slot: TenantSlots) -> None:
    """Waits until a slot may be free."""
    freed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def deliver() -> bool:
        if freed.done():
            return False
        freed.set_result(None)
        return True

    slot.wait(deliver)
    try:
        await freed
    except asyncio.CancelledError:
        if freed.done() and not freed.cancelled():
            slot.stir()
        raise


class Lookups:
    """The lookups of one pod, or of one image pull."""

    def __init__(self, slots: LookupSlots, number: int, seconds: float, tenant: str) -> None:
        self._tenant = tenant
        self._slots = slots
        self._own = asyncio.Semaphore(number)
        self._seconds = seconds
        self._waiting: set[Answer] = set()

    async def ask(self, name: str) -> Sequence[Address]:
        """Looks up a name. OSError if there is no answer, TimeoutError (an OSError, too) if it takes too long."""
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
            work = await self._slots.start(name, self._tenant)
        except BaseException:
            self._own.release()
            raise
        work.add_done_callback(lambda _: self._own.release())
        return await asyncio.shield(work)

    def _ended(self, task: Answer) -> None:
        self._waiting.discard(task)
        _retrieve_error(task)


def _retrieve_error(task: Answer) -> None:
    """Marks the error as retrieved, even if no caller waits any more: otherwise asyncio logs it."""
    if not task.cancelled():
        task.exception()


async def _cancelled(tasks: set[Answer]) -> None:
    running = tuple(tasks)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
