"""A connected socket, plain or TLS: reads when there is something, writes when there is room, and notices a hang-up in between.

The descriptor stays with the event loop between two reads: what comes while nobody reads is the other side hanging up (`watch`), or
bytes for later, of which a bounded number is taken (`held`) and the rest left to the kernel, so that it slows the sender.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import struct
from collections.abc import Callable

PIECE = 64 * 1024
SMALL = 16 * 1024
AHEAD = 64 * 1024

_BLOCKED = (BlockingIOError, InterruptedError, ssl.SSLWantReadError)
_NO_ROOM = (BlockingIOError, InterruptedError, ssl.SSLWantWriteError)
_RESET = struct.pack("ii", 1, 0)


class Line:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.secure = isinstance(sock, ssl.SSLSocket)
        self.held = b""  # read, and not used yet
        self.ended = False  # the other side says nothing more
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
        """What is there; empty at the end."""
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
        """Calls back, from the event loop, when the other side has hung up. None: not any more."""
        self._gone = gone
        if gone is None:
            return
        if self.ended:
            self._loop.call_soon(self._hung_up)
        else:
            self._listen()

    async def readable(self) -> None:
        assert self._reading is None, "two readers on one line"
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
        """Says that nothing more comes from us, and can still read. False: that cannot be said here."""
        if self.secure:
            return False
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            return False
        return True

    def lost(self, *, half: bool) -> bool:
        """Whether the connection is broken or, with `half`, the other side has ended, behind whatever is still to be read."""
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
                self.sock.unwrap()  # says goodbye; nobody waits for the answer
            except (OSError, ValueError):
                pass
        self.sock.close()

    def abort(self) -> None:
        """So that the other side takes nothing that came for whole."""
        if not self._let_go():
            return
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except OSError:
            pass
        self.sock.close()

    def _let_go(self) -> bool:
        """The descriptor is not the loop's any more. False: it was closed before."""
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
