# generated from sdk/_async/exchange.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""One request and its answer on one connection, in HTTP/1.1.

If the answer begins while the request is still being sent, sending stops. A body of known length is read without the parser;
other framings go through h11. The connection can be used again only
if request and answer are complete and neither side asked to close it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import BinaryIO, Protocol, cast

import h11

from sandpool.kube.errors import Refused, Unreachable, Unreadable
from sandpool.sdk._sync.transport import CHUNK
from sandpool.sdk.deadline import Deadline
from sandpool.sdk.errors import Dropped, TimedOut

LONGEST_HEAD = 1 << 16
READ = 1 << 18
MOST_ANNOUNCED = 64  # interim (1xx) answers at most
SMALL = 1 << 16  # bytes of a body that travel in one packet with the head
SECTION = 8 << 20  # bytes of a file that are sent before looking for an early answer

Body = bytes | BinaryIO | Iterable[bytes]


class _Section:
    """A placeholder for bytes of a file that are sent without h11."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


class Exchange:
    def __init__(self, transport: ByteStream) -> None:
        self.transport = transport
        self.status = 0
        self.headers: dict[str, str] = {}
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_HEAD)
        self._method = b""
        self._heard = False
        self._complete = False  # the request
        self._over = False  # the answer
        self._left: int | None = None  # bytes of a body of known length that were not read
        self._held = b""  # bytes of the body that came with the head, or were more than was asked for
        self._keep = False

    @property
    def reusable(self) -> bool:
        return self._complete and self._over and self._keep

    def send(self, request: h11.Request, body: Body, deadline: Deadline) -> None:
        """Sends the request, or as much of it as the other side takes before it answers."""
        self._method = request.method
        try:
            head = self._h11.send(request) or b""
            if isinstance(body, bytes) and len(body) <= SMALL:
                rest = self._h11.send(h11.Data(body)) if body else b""
                self.transport.write(head + (rest or b"") + (self._h11.send(h11.EndOfMessage()) or b""), deadline)
                self._complete = True
                return
            self.transport.write(head, deadline)
            self._complete = self._send_body(body, deadline)
            if self._complete:
                self.transport.write(self._h11.send(h11.EndOfMessage()) or b"", deadline)
        except TimedOut:
            raise
        except Unreachable as error:
            # Some servers answer and close without reading the request: their answer counts, if it can still be read.
            self._complete = False
            if not self._something(deadline):
                raise error from None

    def _send_body(self, body: Body, deadline: Deadline) -> bool:
        if isinstance(body, bytes):
            return self._send_file(io.BytesIO(body), 0, len(body), deadline)
        if hasattr(body, "read"):
            file = cast("BinaryIO", body)
            if (size := body_size(file)) is not None:
                return self._send_file(file, file.tell(), size, deadline)
            while chunk := file.read(CHUNK):
                if not self._send_chunk(chunk, deadline):
                    return False
            return True
        for chunk in body:
            wanted = not chunk or self._send_chunk(chunk, deadline)
            if not wanted:
                return False
        return True

    def _send_chunk(self, chunk: bytes, deadline: Deadline) -> bool:
        data = self._h11.send(h11.Data(chunk)) or b""
        return self.transport.write(data, deadline, heed=True) == len(data) and not self.transport.arrived

    def _send_file(self, file: BinaryIO, offset: int, size: int, deadline: Deadline) -> bool:
        self._h11.send_with_data_passthrough(h11.Data(cast("bytes", _Section(size))))
        sent = 0
        while sent < size:
            if self.transport.arrived:
                return False
            sent += self.transport.sendfile(file, offset + sent, min(SECTION, size - sent), deadline)
        return True

    def _something(self, deadline: Deadline) -> bool:
        try:
            data = self.transport.read(READ, deadline)
        except Unreachable:
            return False
        self._heard = self._heard or bool(data)
        self._h11.receive_data(data)
        return bool(data)

    def begin(self, deadline: Deadline) -> bool:
        """Reads the head of the answer; whether the other side switches to the protocol that was asked for."""
        announced = 0
        while True:
            event = self._next()
            if event is h11.NEED_DATA:
                self._more(deadline)
            elif isinstance(event, h11.InformationalResponse | h11.Response):
                if event.status_code < 200 and event.status_code != 101:
                    announced += 1
                    if announced > MOST_ANNOUNCED:
                        raise Unreadable("too many interim answers (1xx), and no final one")
                    continue
                self.status = event.status_code
                self.headers = _headers(event)
                self._frame(event)
                return event.status_code == 101
            else:
                raise Unreadable("an answer without a head; is this an HTTP server?")

    def read(self, limit: int = READ, deadline: Deadline = None) -> bytes:
        """Some of the body; none at its end."""
        if self._held:
            data, self._held = self._held[:limit], self._held[limit:]
            return data
        if self._over:
            return b""
        if self._left is not None:
            data = self._read(min(limit, self._left), deadline)
            if not data:
                raise Unreadable(f"the answer ended {self._left} bytes too early")
            self._left -= len(data)
            self._over = self._left == 0
            return data
        return self._read_framed(limit, deadline)

    def rest(self) -> bytes:
        """Bytes right behind the head of an answer that switches protocols."""
        return bytes(self._h11.trailing_data[0])

    def _frame(self, event: h11.InformationalResponse | h11.Response) -> None:
        """How the end of the body is found, and whether the connection can be reused."""
        connection = self.headers.get("connection", "").lower()
        self._keep = event.http_version == b"1.1" and "close" not in connection and event.status_code != 101
        chunked = "transfer-encoding" in self.headers
        bodiless = event.status_code in (101, 204, 304) or self._method == b"HEAD"
        if bodiless or chunked or "content-length" not in self.headers:
            return
        self._left = int(self.headers["content-length"])
        self._held = bytes(self._h11.trailing_data[0])
        self._keep = self._keep and len(self._held) <= self._left
        self._held = self._held[: self._left]
        self._left -= len(self._held)
        self._over = self._left == 0

    def _read_framed(self, limit: int, deadline: Deadline) -> bytes:
        while True:
            event = self._next()
            if event is h11.NEED_DATA:
                self._more(deadline)
            elif isinstance(event, h11.Data):
                data = bytes(event.data)
                self._held = data[limit:]
                return data[:limit]
            elif isinstance(event, h11.EndOfMessage):
                self._over = True
                trailing, ended = self._h11.trailing_data
                self._keep = self._keep and not trailing and not ended
                return b""
            else:
                raise Unreadable("the body of an answer cannot be read")

    def _next(self) -> object:
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as error:
            raise Unreadable(f"the answer is not HTTP, or was cut short ({error})") from None

    def _more(self, deadline: Deadline) -> None:
        data = self._read(READ, deadline)
        self._h11.receive_data(data)

    def _read(self, limit: int, deadline: Deadline) -> bytes:
        try:
            data = self.transport.read(limit, deadline)
        except (TimedOut, Refused):
            raise
        except Unreachable as error:
            if not self._heard:
                raise Dropped(str(error)) from None
            raise
        if not data and not self._heard:
            raise Dropped("the connection ended before an answer began")
        self._heard = True
        return data


def body_size(body: Body) -> int | None:
    """Bytes that will be sent: of a file, those from its position to its end. None if that is not known."""
    if isinstance(body, bytes):
        return len(body)
    if not hasattr(body, "read"):
        return None
    file = cast("BinaryIO", body)
    try:
        here = file.tell()
        end = file.seek(0, os.SEEK_END)
        file.seek(here)
        return max(0, end - here)
    except (AttributeError, OSError, ValueError):
        return None


def _headers(event: h11.InformationalResponse | h11.Response) -> dict[str, str]:
    """By lower-case name; the values of a repeated header are joined with commas."""
    found: dict[str, str] = {}
    for name, value in event.headers:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


class ByteStream(Protocol):
    """What HTTP needs of a connection. Transport and Tunnel implement it."""

    @property
    def arrived(self) -> bool:
        """Whether bytes arrived that nobody has read."""
        ...

    def stale(self) -> bool:
        """Whether it cannot be reused after being idle."""
        ...

    def read(self, limit: int, deadline: Deadline = None) -> bytes: ...

    def write(self, data: bytes | memoryview, deadline: Deadline = None, *, heed: bool = False) -> int: ...

    def sendfile(self, file: BinaryIO, offset: int, count: int, deadline: Deadline = None) -> int: ...

    def close(self) -> None: ...
