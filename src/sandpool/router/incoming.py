"""A request in progress: its head, the part of its body that has arrived, and its connection."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from sandpool.base.clock import Clock
from sandpool.base.turns import Turns
from sandpool.router.cancel_scope import CancelScope
from sandpool.router.connection import Connection
from sandpool.router.head import RequestHead
from sandpool.router.options import RouterOptions
from sandpool.router.relay import Meter
from sandpool.router.upstreams import Upstreams
from sandpool.router.values import Gate, Peer, Request
from sandpool.wire.codes import Code, Refused
from sandpool.wire.http_body import BadBody, Chunked, Exact, Reader

AT_ONCE: Final = 1024
"""Bytes of a chunked body that are parsed before other requests get a turn."""


class ClientFailed(Exception):
    """The client hung up, or sent an invalid body."""


class TooSlow(Exception):
    """The client does not send the body that the router waits for."""


@dataclass(slots=True)
class Service:
    """What all connections of a router share."""

    gate: Gate
    options: RouterOptions
    clock: Clock
    upstreams: Upstreams
    turns: Turns = field(default_factory=Turns)  # of tenants, for long work
    stopping: bool = False


@dataclass(slots=True)
class Incoming:
    client: Connection
    peer: Peer
    head: RequestHead
    request: Request
    scope: CancelScope
    body: Reader
    first: bytes = b""  # of the body, read and not forwarded yet
    received: Meter = field(default_factory=Meter)

    def watch(self, on: bool) -> None:
        """Whether the request is cancelled when the client hangs up. Off while somebody reads from it and so notices anyway."""
        self.client.watch(self.gone if on else None)

    def gone(self) -> None:
        self.scope.cut(ClientFailed("the client hung up"))

    def prime(self) -> None:
        """Parses the part of the body that arrived with the head. Raises BadBody."""
        if not self.body.ended and self.client.held:
            self._take(self.client.held)

    async def read(self, most: int, patience: float) -> bytes:
        """The body, at most so many bytes. Raises Refused for an invalid one."""
        self.scope.limit(patience, TooSlow())
        if self.head.expects and not self.first and not self.body.ended:
            await self.client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not self.body.ended and len(self.first) < most:
            try:
                data = await self.client.read()
            except OSError as error:
                raise ClientFailed(str(error)) from error
            if not data:
                raise ClientFailed("the client hung up in the middle of its body")
            try:
                self._take(data)
            except BadBody as error:
                raise Refused(Code.INVALID, str(error)) from None
            await asyncio.sleep(0)
        self.scope.unlimited()
        return self.first[:most]

    def _take(self, data: bytes) -> None:
        """Only a little of a chunked body: chunks may have one byte each, and the caller is not authenticated yet."""
        size = AT_ONCE if isinstance(self.body, Chunked) else len(data)
        piece, rest = self.body.take(data[:size])
        self.client.held = rest + data[size:]
        self.first += piece
        self.received.bytes += len(piece)


def body_of(head: RequestHead) -> Reader:
    return Chunked() if head.chunked else Exact(head.length or 0)
