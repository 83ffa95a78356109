"""Forwards one admitted request to its sandbox, and the response back. Raises what went wrong; the caller reports it."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

from sandpool.router.connection import Connection, CutShort, HangupCheck, read_head
from sandpool.router.head import RequestHead, ResponseHead, parse_response
from sandpool.router.incoming import ClientFailed, Incoming, Service
from sandpool.router.options import WEBSOCKET
from sandpool.router.outgoing import request_head, response_head
from sandpool.router.ports import NoAnswer
from sandpool.router.relay import Meter, ReadFailed, WriteFailed, copy_body, tunnel
from sandpool.router.values import Admitted, Headers
from sandpool.wire.http_body import BadBody, Chunked, Exact, Reader, UntilClose, in_chunks, plain
from sandpool.wire.http_head import BadHead

_REPEATABLE = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"TRACE"})
_MOST_INTERIM = 16


class ResponseTimeout(Exception):
    """The sandbox did not begin its response in time."""


class BadResponse(Exception):
    """The sandbox hung up, or its response cannot be forwarded."""


class _NoResponse(BadResponse):
    """It hung up without a response."""


class Forward:
    def __init__(self, service: Service, incoming: Incoming, admitted: Admitted) -> None:
        self._service = service
        self._in = incoming
        self._admitted = admitted
        wished = incoming.head.upgrade
        self._upgrade = wished if wished in service.options.upgrades else b""
        self._pump: asyncio.Task[None] | None = None
        self._given_back = False
        self._turn = partial(service.turns.take, admitted.tenant)
        self._answered = False  # the sandbox has sent something
        self.sent = Meter()
        self.status = 0  # of the response, once it has begun
        self.tunnelling = False
        # Without a reference to this object, which would keep the flow and the client's connection alive.
        received, sent = incoming.received, self.sent
        admitted.flow.count = lambda: received.bytes + sent.bytes

    async def run(self) -> bool:
        """Whether the client's connection can be reused."""
        if self._admitted.timeout is not None:
            self._in.scope.limit(self._admitted.timeout, ResponseTimeout())
        try:
            self._in.prime()  # more may have arrived while the gate decided
        except BadBody as error:
            raise ClientFailed(str(error)) from error
        upstream = self._service.upstreams.take(self._admitted.pool)
        response = await self._send_over_spare(upstream) if upstream is not None else None
        if response is None or upstream is None:
            upstream = Connection(await self._connect())
        try:
            if response is None:
                response = await self._send_request(upstream)
            self._in.scope.unlimited()
            if response.status == 101:
                return await self._switch(upstream, response)
            return await self._respond(upstream, response)
        finally:
            await self._release(upstream)

    async def _connect(self) -> socket.socket:
        try:
            return await self._admitted.connect()
        except OSError as error:
            raise NoAnswer(f"sandbox {self._admitted.target.name} cannot be reached: {error}") from error

    async def _send_over_spare(self, upstream: Connection) -> ResponseHead | None:
        """Sends the request over a kept connection. None: the sandbox had closed it, and nothing was processed."""
        try:
            return await self._send_request(upstream)
        except BaseException as error:
            await self._release(upstream)
            if isinstance(error, WriteFailed) or (isinstance(error, _NoResponse) and self._repeatable()):
                return None
            raise

    def _repeatable(self) -> bool:
        return not self._answered and self._in.head.bodyless and self._in.head.method in _REPEATABLE

    async def _send_request(self, upstream: Connection) -> ResponseHead:
        incoming = self._in
        head = request_head(incoming.head, incoming.request, incoming.peer, self._admitted, self._upgrade)
        framed = in_chunks if incoming.head.chunked else plain
        try:
            await upstream.write(head, *framed(incoming.first, incoming.body.ended and incoming.head.chunked))
        except OSError as error:
            raise WriteFailed(str(error)) from error
        if not incoming.body.ended:
            incoming.first = b""  # sent: from here on the request cannot be repeated
            incoming.watch(False)
            self._pump = asyncio.create_task(self._send_body(upstream))
        return await self._read_response(upstream)

    async def _send_body(self, upstream: Connection) -> None:
        incoming = self._in
        framed = in_chunks if incoming.head.chunked else plain
        service = self._service
        try:
            with HangupCheck(service.clock, service.options.hangup_check, incoming.client, incoming.gone, half=True):
                await copy_body(incoming.client, incoming.body, upstream, framed, incoming.received, self._turn)
        except ReadFailed as error:
            incoming.scope.cut(ClientFailed(str(error)))
        except WriteFailed:
            incoming.watch(True)  # the sandbox reads no more; its response says why
        except Exception as error:
            incoming.scope.cut(error)
        else:
            incoming.watch(True)

    async def _read_response(self, upstream: Connection) -> ResponseHead:
        options = self._service.options
        for _ in range(_MOST_INTERIM):
            try:
                data = await read_head(upstream, options.longest_head)
                if data is None:
                    raise _NoResponse("the sandbox hung up without an answer")
                response = parse_response(data, options.most_headers)
            except OSError as error:
                raise _NoResponse(f"the sandbox hung up without an answer: {error}") from error
            except CutShort as error:
                raise BadResponse("the sandbox hung up in the middle of its answer") from error
            except BadHead as error:
                raise BadResponse(f"the sandbox's answer is not HTTP: {error.message}") from error
            self._answered = True
            if response.status == 101 and (not self._upgrade or response.upgrade != self._upgrade):
                raise BadResponse("the sandbox switched to a protocol that was not requested")
            if response.status >= 200 or response.status == 101:
                return response
            if self._in.head.minor == 1:
                await self._write_to_client(response_head(response, self._in.request, self._admitted, ()))
        raise BadResponse("the sandbox sends interim responses (1xx) and no final one")

    async def _respond(self, upstream: Connection, response: ResponseHead) -> bool:
        head = self._in.head
        reader, chunks, extra = _framing(head, response)
        delimited = isinstance(reader, Exact) or chunks
        keep = head.keep and delimited and not self._sending and not self._service.stopping
        if not keep:
            extra = (*extra, (b"connection", b"close"))
        self.status = response.status
        first = response_head(response, self._in.request, self._admitted, extra)
        try:
            framed = in_chunks if chunks else plain
            await copy_body(upstream, reader, self._in.client, framed, self.sent, self._turn, first)
        except WriteFailed as error:
            raise ClientFailed(str(error)) from error
        except ReadFailed as error:
            raise BadResponse(str(error)) from error
        if response.keep and not isinstance(reader, UntilClose) and not self._sending and self._in.body.ended:
            self._given_back = True
            self._service.upstreams.give(self._admitted.pool, upstream)
        return keep and self._in.body.ended

    async def _switch(self, upstream: Connection, response: ResponseHead) -> bool:
        options = self._service.options
        extra = ((b"connection", b"upgrade"), (b"upgrade", response.upgrade))
        self.status = 101
        self.tunnelling = True
        self._in.watch(False)
        await self._write_to_client(response_head(response, self._in.request, self._admitted, extra))
        if self._service.stopping:
            return False
        patience = options.websocket_end if self._upgrade == WEBSOCKET else options.half_closed
        clock = self._service.clock
        with HangupCheck(clock, options.hangup_check, self._in.client, self._in.gone, half=False):
            await tunnel(self._in.client, upstream, self._in.received, self.sent, clock, patience, self._turn)
        return False

    async def _write_to_client(self, data: bytes) -> None:
        try:
            await self._in.client.write(data)
        except OSError as error:
            raise ClientFailed(str(error)) from error

    @property
    def _sending(self) -> bool:
        return self._pump is not None and not self._pump.done()

    async def _release(self, upstream: Connection) -> None:
        if self._pump is not None:
            self._pump.cancel()
        if not self._given_back:
            upstream.close()  # first of all: a program in the sandbox may depend on it
        if self._pump is not None:
            await asyncio.wait((self._pump,))


def _framing(head: RequestHead, response: ResponseHead) -> tuple[Reader, bool, Headers]:
    """How the response's body is read, whether it is forwarded in chunks, and the headers for that."""
    length: Headers = () if response.length is None else ((b"content-length", b"%d" % response.length),)
    if head.method == b"HEAD" or response.status == 304:
        return Exact(0), False, length
    if response.status == 204:
        return Exact(0), False, ()
    if response.length is not None:
        return Exact(response.length), False, length
    chunks = head.minor == 1
    reader = Chunked() if response.chunked else UntilClose()
    return reader, chunks, ((b"transfer-encoding", b"chunked"),) if chunks else ()
