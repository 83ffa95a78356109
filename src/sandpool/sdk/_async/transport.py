"""A connection, and what else differs between waiting and blocking: locks, pauses. Written by hand in _async and in _sync.

Bytes of a TCP connection, with TLS or without. While a write is blocked, arriving bytes are kept for the next read, so that two
sides that send at the same time never deadlock. One reader and one writer may work at the same time.
Errors are Refused (never connected), Untrusted, TimedOut and Unreachable.
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, BinaryIO, Generic, TypeVar

from sandpool.kube.errors import Refused, Unreachable
from sandpool.sdk.deadline import Deadline, left
from sandpool.sdk.errors import TimedOut
from sandpool.sdk.origin import Origin
from sandpool.sdk.tls import HUNG_UP, TlsState

T = TypeVar("T")
Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
Lock = asyncio.Lock
sleep = asyncio.sleep

STASH = 64 << 20
"""Bytes kept at most while a write is blocked; then the other side has to wait."""
CHUNK = 1 << 18
"""Bytes of a file that are read at once where the kernel cannot send it by itself."""


async def surely(call: Awaitable[T]) -> T:
    """Completes a call even if the caller is cancelled meanwhile: for releasing what would otherwise leak."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # seen
        raise


async def aside(function: Callable[[], T]) -> T:
    """Runs a blocking call in a thread."""
    return await asyncio.to_thread(function)


class Opening(Generic[T]):
    """Something that is being opened: `await` it and close it yourself, or use it in `async with`."""

    def __init__(self, opened: Coroutine[Any, Any, T]) -> None:
        self._opened = opened
        self._inside: Any = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._opened.__await__()

    async def __aenter__(self) -> T:
        opened = await self._opened
        self._inside = opened
        entered: T = await self._inside.__aenter__()
        return entered

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inside.__aexit__(kind, error, trace)


class Transport:
    def __init__(self, sock: socket.socket, name: str, tls: TlsState | None = None) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._name = name  # for messages
        self._tls = tls
        self._stash = bytearray()  # plain bytes that nobody has read yet
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._sending = asyncio.Lock()
        self._ended = False

    @classmethod
    async def connect(
        cls, origin: Origin, tls: ssl.SSLContext | None, deadline: Deadline, server_name: str = ""
    ) -> Transport:
        """A new connection; with `tls` the handshake is done, too."""
        name = origin.authority
        sock = await _connected(origin, deadline)
        line = cls(sock, name, TlsState(tls, server_name or origin.host) if tls is not None else None)
        try:
            if line._tls is not None:
                await line._shake_hands(line._tls, deadline)
        except BaseException as error:
            line.close()
            if isinstance(error, Unreachable) and not isinstance(error, Refused):
                raise Refused(f"{name}: {HUNG_UP} ({error})") from None
            raise
        return line

    @property
    def arrived(self) -> bool:
        """Whether bytes arrived that nobody has read."""
        return bool(self._stash) or self._ended

    def stale(self) -> bool:
        """Whether an idle connection cannot be reused: the other side has closed it, or has sent something unasked."""
        try:
            return bool(self._stash) or self._ended or (self._sock.recv(1, socket.MSG_PEEK) is not None)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def read(self, limit: int, deadline: Deadline = None) -> bytes:
        """Up to `limit` bytes, as soon as there are any; empty at the end."""
        while True:
            if self._stash:
                return self._take(limit)
            data = self._receive(limit)
            if data is not None:
                return data
            if self._tls is not None:
                await self._flush(deadline)
            await self._readable(deadline)

    async def write(self, data: bytes | memoryview, deadline: Deadline = None, *, heed: bool = False) -> int:
        """Sends the data and returns how much was sent; with `heed` it stops early once the other side sends something."""
        if self._tls is not None:
            self._tls.write(data)
            await self._flush(deadline)
            return len(data)
        async with self._sending:
            return await self._send(data, deadline, heed)

    async def sendfile(self, file: BinaryIO, offset: int, count: int, deadline: Deadline = None) -> int:
        """Sends bytes of a file, with sendfile(2) if possible; stops early once the other side sends something. Returns how many."""
        try:
            descriptor = file.fileno()
        except (AttributeError, io.UnsupportedOperation):
            descriptor = -1
        if self._tls is not None or descriptor < 0:
            return await self._copy(file, offset, count, deadline)
        sent = 0
        async with self._sending:
            while sent < count and not self.arrived:
                try:
                    done = os.sendfile(self._sock.fileno(), descriptor, offset + sent, count - sent)
                except BlockingIOError:
                    await self._writable(deadline)
                    continue
                except OSError as error:
                    raise self._lost(error) from None
                if done == 0:
                    raise ValueError(f"{_file_name(file)} became shorter while it was sent")
                sent += done
        return sent

    async def end(self, deadline: Deadline = None) -> None:
        """Closes the sending side."""
        if self._tls is None:
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                self._ended = True

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            loop = self._loop()
            if loop is not None:
                loop.remove_reader(self._sock.fileno())
                loop.remove_writer(self._sock.fileno())
            for waiter in (self._reader, self._writer):
                if waiter is not None and not waiter.done():
                    waiter.set_exception(Unreachable(f"{self._name}: this connection was closed"))
            self._sock.close()

    async def _copy(self, file: BinaryIO, offset: int, count: int, deadline: Deadline) -> int:
        sent = 0
        file.seek(offset)
        while sent < count and not self.arrived:
            data = file.read(min(CHUNK, count - sent))
            if not data:
                raise ValueError(f"{_file_name(file)} became shorter while it was sent")
            sent += await self.write(data, deadline, heed=True)
        return sent

    async def _shake_hands(self, tls: TlsState, deadline: Deadline) -> None:
        while not tls.shake_hands():
            await self._flush(deadline)
            while (data := self._receive_raw(CHUNK)) is None:
                await self._readable(deadline)
            tls.feed(data)
        await self._flush(deadline)

    def _take(self, limit: int) -> bytes:
        data = bytes(self._stash[:limit])
        del self._stash[:limit]
        return data

    def _receive(self, limit: int) -> bytes | None:
        """Bytes that arrived already; empty at the end; None if there are none."""
        if self._ended:
            return b""
        if self._tls is None:
            data = self._receive_raw(limit)
        else:
            while (data := self._tls.read(limit)) is None:
                raw = self._receive_raw(CHUNK)
                if raw is None:
                    return None
                self._tls.feed(raw)
        if data == b"":
            self._ended = True
        return data

    def _receive_raw(self, limit: int) -> bytes | None:
        try:
            return self._sock.recv(limit)
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._lost(error) from None

    async def _flush(self, deadline: Deadline) -> None:
        assert self._tls is not None
        async with self._sending:
            if data := self._tls.outgoing():
                await self._send(data, deadline, heed=False)

    async def _send(self, data: bytes | memoryview, deadline: Deadline, heed: bool) -> int:
        view, sent = memoryview(data), 0
        while sent < len(view) and not (heed and self.arrived):
            try:
                sent += self._sock.send(view[sent:])
            except BlockingIOError:
                await self._writable(deadline)
            except OSError as error:
                raise self._lost(error) from None
        return sent

    async def _readable(self, deadline: Deadline) -> None:
        loop, self._reader = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        loop.add_reader(self._sock.fileno(), self._hear)
        try:
            await self._woken(self._reader, deadline)
        finally:
            self._reader = None
            if self._writer is None and self._sock.fileno() >= 0:
                loop.remove_reader(self._sock.fileno())

    async def _writable(self, deadline: Deadline) -> None:
        loop, self._writer = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        loop.add_writer(self._sock.fileno(), _wake, self._writer)
        if not self._ended and len(self._stash) < STASH:
            loop.add_reader(self._sock.fileno(), self._hear)
        try:
            await self._woken(self._writer, deadline)
        finally:
            self._writer = None
            if self._sock.fileno() >= 0:
                loop.remove_writer(self._sock.fileno())
                if self._reader is None:
                    loop.remove_reader(self._sock.fileno())

    def _hear(self) -> None:
        """Bytes arrived: a reader takes them; while only a writer waits, they are kept for the next read."""
        if self._reader is not None:
            _wake(self._reader)
            return
        try:
            data = self._receive(CHUNK)
        except Unreachable:
            data = b""
            self._ended = True
        self._stash += data or b""
        if self._writer is not None:
            _wake(self._writer)
        if self._ended or len(self._stash) >= STASH:
            asyncio.get_running_loop().remove_reader(self._sock.fileno())

    async def _woken(self, waiter: asyncio.Future[None], deadline: Deadline) -> None:
        seconds = left(deadline, f"{self._name}: no answer")
        if seconds is None:
            await waiter
            return
        timer = asyncio.get_running_loop().call_later(seconds, self._expire, waiter)
        try:
            await waiter
        finally:
            timer.cancel()

    def _expire(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_exception(TimedOut(f"{self._name}: no answer within the time allowed"))

    def _lost(self, error: OSError) -> Unreachable:
        return Unreachable(f"{self._name}: the connection was lost ({error.strerror or type(error).__name__})")

    @staticmethod
    def _loop() -> asyncio.AbstractEventLoop | None:
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return None


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _file_name(file: BinaryIO) -> str:
    return str(getattr(file, "name", "the file"))


async def _connected(origin: Origin, deadline: Deadline) -> socket.socket:
    failure = f"{origin.authority}: has no address"
    loop = asyncio.get_running_loop()
    for family, kind, protocol, _, address in await _addresses(origin):
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(left(deadline, f"{origin.authority}: no connection")):
                await loop.sock_connect(sock, address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return sock
        except TimeoutError:
            sock.close()
            raise Refused(f"{origin.authority}: no connection within the time allowed; is it reachable?") from None
        except OSError as error:
            sock.close()
            failure = f"{origin.authority}: cannot connect ({error.strerror or error})"
        except BaseException:
            sock.close()
            raise
    raise Refused(f"{failure}; is the server running?")


async def _addresses(origin: Origin) -> Sequence[Address]:
    try:  # a numeric address needs no resolver thread
        return socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        pass
    try:
        return await asyncio.get_running_loop().getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Refused(f"{origin.host}: this name has no address ({error.strerror}); check the address") from None
