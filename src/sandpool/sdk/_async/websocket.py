"""The client side of a WebSocket: whole messages both ways over an upgraded connection.

One task (or thread) may receive while others send. Pings are answered while receiving.
"""

from __future__ import annotations

import base64
import os
from collections import deque
from collections.abc import Mapping

from sandpool.kube.errors import Unreachable, Unreadable
from sandpool.sdk._async.exchange import ByteStream
from sandpool.sdk._async.transport import Lock
from sandpool.sdk.deadline import Deadline, after, left
from sandpool.wire.websocket import (
    CloseCode,
    Closed,
    Decoder,
    Event,
    Message,
    Opcode,
    Piece,
    Ping,
    Role,
    Violation,
    accept_key,
    close_frame,
    frame,
)

LONGEST = 16 << 20  # bytes of one message
READ = 1 << 18
MANY = 1000
CLOSE_TIMEOUT = 1.0  # seconds that the other side may take for the closing handshake


class WebSocket:
    def __init__(self, transport: ByteStream, protocol: str = "") -> None:
        self.protocol = protocol
        self.headers: Mapping[str, str] = {}  # of the answer that began it; names in lower case
        self.code: int | None = None  # why the other side closed it
        self.reason = ""
        self._transport = transport
        self._decoder = Decoder(Role.CLIENT)
        self._events: deque[Event] = deque()
        self._message = Message(LONGEST)
        self._sending = Lock()
        self._closing = False

    async def send(self, data: bytes, timeout: float | None = None) -> None:
        """One binary message."""
        await self._send(frame(Opcode.BINARY, data, mask=os.urandom(4)), after(timeout))

    async def ping(self, data: bytes = b"") -> None:
        await self._send(frame(Opcode.PING, data, mask=os.urandom(4)), None)

    async def receive(self, timeout: float | None = None) -> bytes | None:
        """The next message; None if the other side has closed (`code` and `reason` say why)."""
        deadline = after(timeout)
        while True:
            if (message := await self._next(deadline)) is not None:
                return message
            if self.code is not None:
                return None
            left(deadline)  # empty frames may come without end
            data = await self._transport.read(READ, deadline)
            if not data:
                raise Unreachable("the WebSocket was cut off")
            self.feed(data)

    async def received(self) -> list[bytes | None]:
        """Messages that arrived while something was sent, at most a batch. The last one is None if the other side closed."""
        found: list[bytes | None] = []
        while self._transport.arrived and self.code is None and len(found) < MANY:
            data = await self._transport.read(READ)
            if not data:
                raise Unreachable("the WebSocket was cut off")
            self.feed(data)
            while (message := await self._next(None)) is not None:
                found.append(message)
        return [*found, None] if self.code is not None else found

    async def _next(self, deadline: Deadline) -> bytes | None:
        """The next message among the events that arrived; None if there is none. Answers pings."""
        while self._events:
            event = self._events.popleft()
            if isinstance(event, Piece):
                if (message := self._assemble(event)) is not None:
                    return message
            elif isinstance(event, Ping):
                await self._send(frame(Opcode.PONG, event.data, mask=os.urandom(4)), deadline)
            elif isinstance(event, Closed):
                self.code, self.reason = event.code, event.reason
                await self.close(wait=False)
        return None

    def stale(self) -> bool:
        """Whether something arrived, or the connection ended."""
        return self.code is not None or bool(self._events) or self._transport.stale()

    def abort(self) -> None:
        """Closes the connection without the closing handshake."""
        self._transport.close()

    def feed(self, data: bytes) -> None:
        """Bytes that came."""
        try:
            self._events += self._decoder.feed(data)
        except Violation as violation:
            raise Unreadable(f"the other side broke the WebSocket protocol: {violation.why}") from None

    async def close(self, code: int = CloseCode.NORMAL, *, wait: bool = True) -> None:
        """Closes with a handshake, so that the other side has surely received what was sent before."""
        if self._closing:
            return
        self._closing = True
        try:
            await self._transport.write(close_frame(code, mask=os.urandom(4)), after(CLOSE_TIMEOUT))
            if wait and self.code is None:
                deadline = after(CLOSE_TIMEOUT)
                while data := await self._transport.read(READ, deadline):
                    if any(isinstance(event, Closed) for event in self._decoder.feed(data)):
                        break
                    left(deadline)  # nor does a side that keeps sending delay us
        except (Unreachable, Violation):
            pass

    def _assemble(self, piece: Piece) -> bytes | None:
        try:
            return self._message.add(piece)
        except Violation:
            raise Unreadable(f"a WebSocket message is longer than {LONGEST} bytes") from None

    async def _send(self, data: bytes, deadline: Deadline) -> None:
        async with self._sending:
            await self._transport.write(data, deadline)


def upgrade_headers(protocols: tuple[str, ...]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The key of a new WebSocket, and the headers that ask for one."""
    key = base64.b64encode(os.urandom(16)).decode()
    asked = (
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", key),
    )
    return key, (*asked, ("Sec-WebSocket-Protocol", ", ".join(protocols))) if protocols else asked


def verify_upgrade(key: str, headers: dict[str, str], protocols: tuple[str, ...]) -> None:
    if headers.get("sec-websocket-accept", "").encode() != accept_key(key.encode()):
        raise Unreadable("the server switched to a protocol that is not WebSocket")
    chosen = headers.get("sec-websocket-protocol", "")
    if protocols and chosen not in protocols:
        raise Unreadable("the server chose none of the WebSocket protocols that it was offered")
