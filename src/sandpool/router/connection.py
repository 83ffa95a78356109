"""A connected socket, plain or TLS: reads, writes, and notices when the peer hangs up in between.

The descriptor stays registered with the event loop between two reads, to notice that the peer hangs up (`watch`). Bytes that arrive
meanwhile are kept up to a bound (`held`); the rest stays in the kernel, which slows the sender.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import struct
from collections.abc import Callable
from types import TracebackType

from sandpool.base.clock import Clock, Timer
from sandpool.wire.http_head import END, BadHead

PIECE = 64 * 1024
SMALL = 16 * 1024
AHEAD = 64 * 1024

_BLOCKED = (BlockingIOError, InterruptedError, ssl.SSLWantReadError)
_NO_ROOM = (BlockingIOError, InterruptedError, ssl.SSLWantWriteError)
_RESET = struct.pack("ii", 1, 0)


class Connection:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.secure = isinstance(sock, ssl.SSLSocket)
        self.held = b""  # read, and not used yet
        self.ended = False  # the peer has closed its sending side
        self._loop = asyncio.get_running_loop()
        self._fd = sock.fileno()
        self._listening = False
        self._reading: asyncio.Future[None] | None = None
        self._writing = False
        self._gone: Callable[[], None] | None = None

    async def handshake(self) -> None:
        assert isinstance(self.sock, ssl.SSLSocket)
        while True:
            try:
                return self.sock.do_handshake()
            except ssl.SSLWantReadError:
                await self.readable()
            except ssl.SSLWantWriteError:
                await self.writable()

    async def read(self, most: int = PIECE) -> bytes:
        """The next bytes; empty at the end."""
        if self.held:
            data, self.held = self.held, b""
            return data
        while not self.ended:
            try:
                data = self.sock.recv(most)
            except _BLOCKED:
                await self.readable()
            except ssl.SSLWantWriteError:
                await self.writable()
            else:
                self.ended = not data
                return data
        return b""

    async def write(self, *parts: bytes) -> None:
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        try:
            sent = self.sock.send(data)
        except _NO_ROOM:
            sent = 0
        if sent == len(data):
            return
        rest = memoryview(data)[sent:]
        while rest:
            await self.writable()
            try:
                rest = rest[self.sock.send(rest) :]
            except _NO_ROOM:
                continue

    def watch(self, gone: Callable[[], None] | None) -> None:
        """Calls back, from the event loop, when the peer has hung up. None: stops watching."""
        self._gone = gone
        if gone is None:
            return
        if self.ended:
            self._loop.call_soon(self._hung_up)
        else:
            self._listen()

    async def readable(self) -> None:
        assert self._reading is None, "two readers on one connection"
        self._reading = self._loop.create_future()
        self._listen()
        try:
            await self._reading
        finally:
            self._reading = None

    async def writable(self) -> None:
        room = self._loop.create_future()
        self._loop.add_writer(self._fd, _resolve, room)
        self._writing = True
        try:
            await room
        finally:
            self._full()

    def end(self) -> bool:
        """Closes the sending side and can still read. False: not possible on this connection."""
        if self.secure:
            return False
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            return False
        return True

    def lost(self, *, half: bool) -> bool:
        """Whether the connection is broken or, with `half`, the peer has closed its sending side, apart from bytes still to be read."""
        if self._fd < 0:
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLRDHUP if half else 0)
        return bool(poll.poll(0))

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def close(self) -> None:
        if not self._let_go():
            return
        if isinstance(self.sock, ssl.SSLSocket):
            try:
                self.sock.unwrap()  # sends close_notify; nobody waits for the answer
            except (OSError, ValueError):
                pass
        self.sock.close()

    def abort(self) -> None:
        """Resets the connection, so that the peer does not take a partial body for complete."""
        if not self._let_go():
            return
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except OSError:
            pass
        self.sock.close()

    def _let_go(self) -> bool:
        """Removes the descriptor from the event loop. False: it was closed before."""
        if self._fd < 0:
            return False
        self._gone = None
        self._deaf()
        self._full()
        self._fd = -1
        return True

    def _full(self) -> None:
        if self._writing:
            self._loop.remove_writer(self._fd)
            self._writing = False

    def _listen(self) -> None:
        if not self._listening:
            self._loop.add_reader(self._fd, self._heard)
            self._listening = True

    def _deaf(self) -> None:
        if self._listening:
            self._loop.remove_reader(self._fd)
            self._listening = False

    def _heard(self) -> None:
        if self._reading is not None:
            _resolve(self._reading)
            return
        if self._gone is None or len(self.held) >= AHEAD:
            self._deaf()  # the kernel keeps it, and slows the sender
            return
        try:
            data = self.sock.recv(AHEAD)
        except (*_BLOCKED, ssl.SSLWantWriteError):
            return
        except OSError:
            data = b""
        if data:
            self.held += data
        else:
            self.ended = True
            self._deaf()
            self._hung_up()

    def _hung_up(self) -> None:
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class CutShort(Exception):
    """The peer hung up in the middle of a head."""


async def read_head(connection: Connection, longest: int, begun: Callable[[], None] | None = None) -> bytes | None:
    """All lines of a head, with line ends, without the empty one. None: the peer hung up before its first byte. `begun` is called when
    the first byte has arrived and the last one has not."""
    if not (connection.held or connection.ended or connection.secure):
        await connection.readable()  # nothing has arrived yet, so do not try to read
    data = await connection.read(SMALL)
    if not data:
        return None
    seen = 0
    while (end := data.find(END, seen)) < 0:
        if len(data) > longest:
            raise BadHead("the head is too long", 431)
        if begun is not None:
            begun()
            begun = None
        seen = max(0, len(data) - 3)
        more = await connection.read(SMALL)
        if not more:
            raise CutShort
        data += more
    if end + 4 > longest:
        raise BadHead("the head is too long", 431)
    connection.held = data[end + 4 :] + connection.held
    return data[: end + 2]


class HangupCheck:
    """Polls whether a client that nobody reads from has hung up. `with HangupCheck(...)` calls `gone` at most once. `half`: a client
    that has closed its sending side counts as gone."""

    __slots__ = ("_clock", "_connection", "_every", "_gone", "_half", "_timer")

    def __init__(
        self, clock: Clock, every: float, connection: Connection, gone: Callable[[], None], *, half: bool
    ) -> None:
        self._clock = clock
        self._every = every
        self._connection = connection
        self._gone = gone
        self._half = half
        self._timer: Timer | None = None

    def __enter__(self) -> None:
        self._timer = self._clock.call_later(self._every, self._look)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._connection.lost(half=self._half):
            self._gone()
        else:
            self._timer = self._clock.call_later(self._every, self._look)
