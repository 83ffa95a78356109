"""Accepts connections for an App: from a TCP port, a unix socket, or one by one from the process that forked us."""

from __future__ import annotations

import array
import asyncio
import os
import socket
import stat
from collections.abc import Awaitable
from typing import Protocol

from sandpool.boxd.http.connection import Connection, Request, protocol
from sandpool.boxd.http.reply import Answer
from sandpool.boxd.ready import readable
from sandpool.wire.headers import INCARNATION

MOST_CONNECTIONS = 1024


class Answering(Protocol):
    """What connections need of an App."""

    incarnation: str

    async def handle(self, request: Request) -> Answer: ...

    async def close(self) -> None: ...


class Server:
    def __init__(self, app: Answering, token: str) -> None:
        self._app = app
        self._token = token
        self._said = {INCARNATION.lower(): app.incarnation}
        self._tasks: dict[asyncio.Task[None], Connection | None] = {}
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []

    def listen(self, listener: socket.socket) -> None:
        """Accepts connections of a listening socket, which the server owns from now on."""
        listener.setblocking(False)
        self._listeners.append(listener)
        self._accepting.append(asyncio.create_task(self._accept(listener)))

    async def take_from(self, channel: socket.socket) -> None:
        """Serves connections that are received as descriptors over this channel, until its other end is closed."""
        channel.setblocking(False)
        while True:
            try:
                handed = _receive(channel)
            except BlockingIOError:
                await readable(channel)
                continue
            if handed is None:
                return
            for connection in handed:
                self._serve(connection)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # out of descriptors; the next one may succeed
                await asyncio.sleep(0.05)
                continue
            self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        if len(self._tasks) >= MOST_CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.create_task(self._converse(connection))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _converse(self, connection: socket.socket) -> None:
        made, reader = protocol()
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: made, connection)
        except OSError:
            connection.close()
            return
        conversation = Connection(reader, transport, made, self._app.handle, self._token, self._said)
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = conversation
        await conversation.serve()

    async def close(self, grace: float = 5.0) -> None:
        for task in self._accepting:
            task.cancel()
        for listener in self._listeners:
            listener.close()
        await self._app.close()
        tasks = list(self._tasks)
        busy = [task for task, conversation in self._tasks.items() if conversation is None or not conversation.idle]
        if busy:
            await asyncio.wait(busy, timeout=grace)
        for task in tasks:
            task.cancel()
        await _settled([*tasks, *self._accepting])


async def _settled(tasks: list[asyncio.Task[None]]) -> None:
    waiting: Awaitable[object] = asyncio.gather(*tasks, return_exceptions=True)
    await waiting


def _receive(channel: socket.socket) -> list[socket.socket] | None:
    """The sockets received; None at the end of the channel."""
    number = array.array("i")
    # Processes that boxd starts must not inherit them: they could read and write the connections of all clients.
    room = socket.CMSG_SPACE(4 * number.itemsize)
    data, ancillary, _, _ = channel.recvmsg(1, room, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            number.frombytes(content[: len(content) - len(content) % number.itemsize])
    found = []
    for fd in number:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            found.append(socket.socket(fileno=fd))
        else:
            os.close(fd)
    return found
