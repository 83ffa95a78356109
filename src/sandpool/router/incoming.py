"""A request on its way: its head, what is here of its body, and the connection that it came on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from sandpool.base.clock import Clock
from sandpool.base.turns import Turns
from sandpool.router.body import BadBody, Chunked, Exact, Reader
from sandpool.router.head import RequestHead
from sandpool.router.line import Line
from sandpool.router.options import RouterOptions
from sandpool.router.scope import Scope
from sandpool.router.splice import Meter
from sandpool.router.upstreams import Upstreams
from sandpool.router.values import Gate, Peer, Request
from sandpool.wire.codes import Code, Refused

AT_ONCE: Final = 1024
"""Bytes of a body in chunks that are looked at before others have a turn."""


class ClientFailed(Exception):
    """The client hung up, or sent a body that is none."""


class TooSlow(Exception):
    """The client does not send the body that the router waits for."""


@dataclass(slots=True)
class Service:
    """What all connections of a router share."""

    gate: Gate
    options: RouterOptions
    clock: Clock
    upstreams: Upstreams
    turns: Turns = field(default_factory=Turns)  # of tenants, for what takes long
    stopping: bool = False


@dataclass(slots=True)
class Incoming:
    client: Line
    peer: Peer
    head: RequestHead
    request: Request
    scope: Scope
    body: Reader
    first: bytes = b""  # of the body, read and not passed on yet
    received: Meter = field(default_factory=Meter)

    def watch(self, on: bool) -> None:
        """Whether a hang-up of the client ends everything at once. Off while somebody reads from it, and so hears it anyway."""
        self.client.watch(self.gone if on else None)

    def gone(self) -> None:
        self.scope.cut(ClientFailed("the client hung up"))

    def prime(self) -> None:
        """Takes what came with the head. Raises BadBody."""
        if not self.body.ended and self.client.held:
            self._take(self.client.held)

    async def read(self, most: int, patience: float) -> bytes:
        """The body, at most so many bytes of it. Raises Refused for one that is none."""
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
        """Of chunks a little: they may be of one byte each, and nobody has said yet who asks."""
        size = AT_ONCE if isinstance(self.body, Chunked) else len(data)
        piece, rest = self.body.take(data[:size])
        self.client.held = rest + data[size:]
        self.first += piece
        self.received.bytes += len(piece)


def body_of(head: RequestHead) -> Reader:
    return Chunked() if head.chunked else Exact(head.length or 0)
