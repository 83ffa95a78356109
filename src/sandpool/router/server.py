"""The router's server: listens, or takes connections that others have accepted, and serves each in a task of its own.

server = RouterServer(gate, RouterOptions(), SystemClock())
host, port = await server.listen("127.0.0.1", 0)
server.take(sock, Peer("10.0.0.7", proved=caller))
await server.stop()
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from itertools import count

from sandpool.base import open_files as descriptors
from sandpool.base.clock import Clock
from sandpool.router.answers import encoded, problem
from sandpool.router.client_connection import ClientConnection
from sandpool.router.connection import Connection
from sandpool.router.incoming import Service
from sandpool.router.options import RouterOptions
from sandpool.router.upstreams import Upstreams
from sandpool.router.values import Gate, Peer
from sandpool.telemetry.log import logger

log = logger(__name__)

_BACKLOG = 1024
_BATCH = 32
_NO_DESCRIPTORS = 0.05  # seconds until the next try
_ALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 20), (socket.TCP_KEEPCNT, 3))


class RouterServer:
    def __init__(self, gate: Gate, options: RouterOptions, clock: Clock) -> None:
        self._service = Service(gate, options, clock, Upstreams(options, clock))
        self._listeners: list[socket.socket] = []
        self._served: dict[asyncio.Task[None], ClientConnection] = {}
        self._ids = count(1)
        self._mark = os.urandom(6).hex()

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Returns where it listens; port 0 takes a free one. Raises OSError."""
        loop = asyncio.get_running_loop()
        if tls is not None:
            tls.options |= ssl.OP_NO_RENEGOTIATION  # a writer never has to read first
        family, _, _, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        listener.setblocking(False)
        self._listeners.append(listener)
        loop.add_reader(listener.fileno(), self._accept, listener, tls)
        bound: tuple[str, int] = listener.getsockname()[:2]
        return bound

    def take(self, sock: socket.socket, peer: Peer) -> None:
        """Serves a connected socket and owns it from now on."""
        if self._service.stopping or not self._room():
            _turn_away(sock)
            return
        connection = ClientConnection(self._service, Connection(sock), peer, self._new_id)
        task = asyncio.get_running_loop().create_task(connection.serve())
        self._served[task] = connection
        task.add_done_callback(self._ended)

    def _room(self) -> bool:
        """Whether another connection may be served; if necessary, closes the oldest idle one."""
        if len(self._served) < self._service.options.connections:
            return True
        for task, connection in self._served.items():
            if connection.make_room():
                task.cancel()
                return True
        return False

    async def stop(self) -> None:
        """Accepts nothing new, lets requests finish for as long as the options say, then cancels them. Tunnels are closed at once."""
        self._service.stopping = True
        self._close_listeners()
        for task, connection in self._served.items():
            if connection.disposable:
                task.cancel()
        if self._served:
            over = asyncio.Event()
            timer = self._service.clock.call_later(self._service.options.grace, over.set)
            await _either(list(self._served), over)
            timer.cancel()
        left = list(self._served)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        self._service.upstreams.close()

    def _close_listeners(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener.fileno())
            listener.close()
        self._listeners.clear()

    def _accept(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        for _ in range(_BATCH):
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listener, tls, error)
                return
            if descriptors.scarce(sock.fileno()):
                _turn_away(sock)
                self._pause(listener, tls)
                return
            try:
                self._begin(sock, address[0], tls)
            except OSError:  # the client hung up already
                sock.close()

    def _begin(self, sock: socket.socket, address: str, tls: ssl.SSLContext | None) -> None:
        sock.setblocking(False)
        sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
        )  # tunnels have no other way to notice a machine that vanished
        for option, value in _ALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        if tls is not None:
            sock = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self.take(sock, Peer(address, secure=tls is not None))

    def _pause(self, listener: socket.socket, tls: ssl.SSLContext | None, error: OSError | None = None) -> None:
        """No descriptor is left: without a pause the loop would spin on a listener that stays readable."""
        few = error is None or error.errno in (errno.EMFILE, errno.ENFILE)
        log.warning("cannot accept a connection", error=descriptors.limit_message() if few else error)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())

        def resume() -> None:
            if listener in self._listeners:
                loop.add_reader(listener.fileno(), self._accept, listener, tls)

        self._service.clock.call_later(_NO_DESCRIPTORS, resume)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._served.pop(task).close()  # a task that is cancelled before its first step never closes it
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection failed", exc=error)

    def _new_id(self) -> str:
        return f"{self._mark}-{next(self._ids):x}"


def _turn_away(sock: socket.socket) -> None:
    try:
        sock.setblocking(False)
        if not isinstance(sock, ssl.SSLSocket):
            sock.send(encoded(problem(503, "the router has too many connections; try again in a moment"), close=True))
    except OSError:
        pass
    sock.close()


async def _either(tasks: list[asyncio.Task[None]], over: asyncio.Event) -> None:
    """Waits until all tasks have ended, or until the timeout."""
    waiting = asyncio.ensure_future(over.wait())
    everything = asyncio.ensure_future(asyncio.wait(tasks))
    await asyncio.wait((waiting, everything), return_when=asyncio.FIRST_COMPLETED)
    for future in (waiting, everything):
        future.cancel()
    await asyncio.wait((waiting, everything))
