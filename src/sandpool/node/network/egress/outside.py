"""The two steps that really touch the outside, as functions that tests replace: looking a name up, and connecting."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address

from sandpool.base import open_files as descriptors
from sandpool.node.network.forbidden import Address

Resolve = Callable[[str], Awaitable[Sequence[Address]]]
"""All addresses of a name, in the order in which they should be tried. OSError if there is none."""
Connect = Callable[[Address, int], Awaitable[socket.socket]]
"""A connected, non-blocking socket to exactly this address, which the caller owns. OSError if that fails."""


async def resolve(name: str) -> Sequence[Address]:
    """Asks the machine's resolver, in a thread of its own that nobody waits for at the end of the process: it may hang for
    longer than anybody wants to wait, and the event loop's own threads are needed elsewhere."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[Address]] = loop.create_future()

    def tell(found: Sequence[Address] | OSError) -> None:
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
            loop.call_soon_threadsafe(tell, found)
        except RuntimeError:
            pass  # the loop is closed: nobody wants to know any more

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
            raise OSError(errno.EMFILE, descriptors.told())
        await asyncio.get_running_loop().sock_connect(connection, (str(address), port))
    except BaseException:
        connection.close()
        raise
    return connection
