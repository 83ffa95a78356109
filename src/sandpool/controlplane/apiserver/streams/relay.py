"""Bytes between a socket of a sandbox and a client's stream, both ways, with half-close.

Neither side is read faster than the other takes it. Either may end first; the other direction goes on until it has ended, too.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final, Protocol

from sandpool.controlplane.apiserver.streams.pipe import Gone

CHUNK: Final = 64 * 1024


class Peer(Protocol):
    """The client's end."""

    async def read(self) -> bytes:
        """Empty at its end."""
        ...

    async def write(self, data: bytes) -> None:
        """Gone if nobody reads any more."""
        ...

    async def finish(self) -> None:
        """Nothing more is written."""
        ...


async def relay(sock: socket.socket, peer: Peer) -> None:
    """Until both directions have ended. The socket stays the caller's."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_up(sock, peer))
        tasks.create_task(_down(sock, peer))


async def _up(sock: socket.socket, peer: Peer) -> None:
    loop = asyncio.get_running_loop()
    try:
        while data := await peer.read():
            await loop.sock_sendall(sock, data)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        while await peer.read():
            pass  # the sandbox takes no more; the client need not know before it has read what came


async def _down(sock: socket.socket, peer: Peer) -> None:
    loop = asyncio.get_running_loop()
    try:
        try:
            while data := await loop.sock_recv(sock, CHUNK):
                await peer.write(data)
        except OSError:
            pass  # the sandbox broke it off: for the client it has ended
        await peer.finish()
    except Gone:
        pass
