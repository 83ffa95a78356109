"""A connection, and what else differs between waiting and blocking: locks, pauses. Written by hand in _async and in _sync.

Bytes of a TCP connection, with TLS or without. A write that the other side holds up keeps what arrives meanwhile for the
next read, so that two sides that talk at once never wait for each other. One thread may read while another one writes.
Errors are Refused (never connected), Untrusted, TimedOut and Unreachable.
"""

from __future__ import annotations

import io
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, TypeVar

from sandpool.kube.errors import Refused, Unreachable
from sandpool.sdk.deadline import Deadline, left
from sandpool.sdk.errors import TimedOut
from sandpool.sdk.origin import Origin
from sandpool.sdk.tls import HUNG_UP, TlsState

T = TypeVar("T")
Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
Lock = threading.Lock
sleep = time.sleep

STASH = 64 << 20
"""Bytes kept at most while a write is held up; then the other side has to wait."""
CHUNK = 1 << 18
"""Bytes of a file that are read at once where the kernel cannot send it by itself."""
LOOK_AGAIN = 0.2
"""Seconds after which a writer looks whether the thread that was reading still does."""


def aside(function: Callable[[], T]) -> T:
    """In _async this lets others go on while something blocks. Here there are none."""
    return function()


class Transport:
    def __init__(self, sock: socket.socket, name: str, tls: TlsState | None = None) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._name = name  # for messages
        self._tls = tls
        self._stash = bytearray()  # plain bytes that arrived while nobody read; whoever touches it holds _receiving
        self._receiving = threading.Lock()
        self._sending = threading.Lock()
        self._ended = False
        self._closed = False

    @classmethod
    def connect(
        cls, origin: Origin, tls: ssl.SSLContext | None, deadline: Deadline, server_name: str = ""
    ) -> Transport:
        """A new connection; with `tls` the handshake is done, too."""
        name = origin.authority
        sock = _connected(origin, deadline)
        line = cls(sock, name, TlsState(tls, server_name or origin.host) if tls is not None else None)
        try:
            if line._tls is not None:
                line._shake_hands(line._tls, deadline)
        except BaseException as error:
            line.close()
            if isinstance(error, Unreachable) and not isinstance(error, Refused):
                raise Refused(f"{name}: {HUNG_UP} ({error})") from None
            raise
        return line

    @property
    def arrived(self) -> bool:
        """Whether something came while nobody read."""
        return bool(self._stash) or self._ended

    def stale(self) -> bool:
        """Whether an idle connection can not be used again: the other side has closed it, or says what nobody asked for."""
        try:
            return bool(self._stash) or self._ended or (self._sock.recv(1, socket.MSG_PEEK) is not None)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def read(self, limit: int, deadline: Deadline = None) -> bytes:
        """Up to `limit` bytes as soon as there are any; none at the end."""
        with self._receiving:
            while True:
                if self._stash:
                    return self._take(limit)
                data = self._receive(limit)
                if data is not None:
                    return data
                if self._tls is not None:
                    self._flush(deadline, reading=True)
                self._wait(select.POLLIN, deadline)

    def write(self, data: bytes | memoryview, deadline: Deadline = None, *, heed: bool = False) -> int:
        """Sends all of it and gives its length; with `heed` it stops early once the other side says something."""
        if self._tls is not None:
            self._tls.write(data)
            self._flush(deadline)
            return len(data)
        with self._sending:
            return self._send(data, deadline, heed)

    def sendfile(self, file: BinaryIO, offset: int, count: int, deadline: Deadline = None) -> int:
        """Sends bytes of a file, by the kernel where it can; stops early once the other side says something. Gives how many."""
        try:
            descriptor = file.fileno()
        except (AttributeError, io.UnsupportedOperation):
            descriptor = -1
        if self._tls is not None or descriptor < 0:
            return self._copy(file, offset, count, deadline)
        sent = 0
        with self._sending:
            while sent < count and not self.arrived:
                try:
                    done = os.sendfile(self._sock.fileno(), descriptor, offset + sent, count - sent)
                except BlockingIOError:
                    self._writable(deadline)
                    continue
                except OSError as error:
                    raise self._lost(error) from None
                if done == 0:
                    raise ValueError(f"{_file_name(file)} became shorter while it was sent")
                sent += done
        return sent

    def end(self, deadline: Deadline = None) -> None:
        """Says that nothing more will be written."""
        if self._tls is None:
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                self._ended = True

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                self._sock.shutdown(socket.SHUT_RDWR)  # wakes whoever waits in another thread
            except OSError:
                pass
            self._sock.close()

    def _copy(self, file: BinaryIO, offset: int, count: int, deadline: Deadline) -> int:
        sent = 0
        file.seek(offset)
        while sent < count and not self.arrived:
            data = file.read(min(CHUNK, count - sent))
            if not data:
                raise ValueError(f"{_file_name(file)} became shorter while it was sent")
            sent += self.write(data, deadline, heed=True)
        return sent

    def _shake_hands(self, tls: TlsState, deadline: Deadline) -> None:
        while not tls.shake_hands():
            self._flush(deadline, reading=True)
            while (data := self._receive_raw(CHUNK)) is None:
                self._wait(select.POLLIN, deadline)
            tls.feed(data)
        self._flush(deadline, reading=True)

    def _take(self, limit: int) -> bytes:
        data = bytes(self._stash[:limit])
        del self._stash[:limit]
        return data

    def _receive(self, limit: int) -> bytes | None:
        """What is there already; none at the end; None if nothing is."""
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

    def _flush(self, deadline: Deadline, *, reading: bool = False) -> None:
        assert self._tls is not None
        with self._sending:
            if data := self._tls.outgoing():
                self._send(data, deadline, heed=False, reading=reading)

    def _send(self, data: bytes | memoryview, deadline: Deadline, heed: bool, *, reading: bool = False) -> int:
        view, sent = memoryview(data), 0
        while sent < len(view) and not (heed and self.arrived):
            try:
                sent += self._sock.send(view[sent:])
            except BlockingIOError:
                self._writable(deadline, reading=reading)
            except OSError as error:
                raise self._lost(error) from None
        return sent

    def _writable(self, deadline: Deadline, *, reading: bool = False) -> None:
        """Until something can be sent. What arrives meanwhile is kept, unless a thread is reading (maybe this one), or it is too much."""
        full = len(self._stash) >= STASH
        if reading or full or self._ended or not self._receiving.acquire(blocking=False):
            self._wait(select.POLLOUT, deadline, LOOK_AGAIN)
            return
        try:
            if self._wait(select.POLLIN | select.POLLOUT, deadline) & ~select.POLLOUT:
                self._hear()
        finally:
            self._receiving.release()

    def _hear(self) -> None:
        try:
            data = self._receive(CHUNK)
        except Unreachable:
            data = b""
            self._ended = True
        self._stash += data or b""

    def _wait(self, events: int, deadline: Deadline, most: float | None = None) -> int:
        """Which of these happened; 0 after `most` seconds."""
        seconds = left(deadline, f"{self._name}: no answer")
        bounded = seconds if most is None or (seconds is not None and seconds < most) else most
        poll = select.poll()
        try:
            poll.register(self._sock, events)
            happened = poll.poll(None if bounded is None else bounded * 1000)
        except (OSError, ValueError):  # closed by another thread
            raise Unreachable(f"{self._name}: this connection was closed") from None
        if self._closed:
            raise Unreachable(f"{self._name}: this connection was closed")
        if not happened and (most is None or bounded != most):
            raise TimedOut(f"{self._name}: no answer within the time allowed")
        return happened[0][1] if happened else 0

    def _lost(self, error: OSError) -> Unreachable:
        return Unreachable(f"{self._name}: the connection was lost ({error.strerror or type(error).__name__})")


def _file_name(file: BinaryIO) -> str:
    return str(getattr(file, "name", "the file"))


def _connected(origin: Origin, deadline: Deadline) -> socket.socket:
    failure = f"{origin.authority}: has no address"
    for family, kind, protocol, _, address in _addresses(origin):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(left(deadline, f"{origin.authority}: no connection"))
            sock.connect(address)
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


def _addresses(origin: Origin) -> Sequence[Address]:
    try:
        return socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Refused(f"{origin.host}: this name has no address ({error.strerror}); check the address") from None
