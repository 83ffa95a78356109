"""One connection of a client: requests one after the other, each answered before the next is looked at."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from sandpool.base.portions import EACH
from sandpool.base.shares import NOBODY
from sandpool.router.answers import encoded, problem
from sandpool.router.exchange import Exchange
from sandpool.router.head import BadHead, RequestHead, parse_request
from sandpool.router.incoming import Incoming, Service, body_of
from sandpool.router.line import Line
from sandpool.router.reading import CutShort, read_head
from sandpool.router.scope import Scope
from sandpool.router.values import Peer, Request
from sandpool.wire.headers import REQUEST_ID

_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_REQUEST_ID = REQUEST_ID.lower().encode()


class _Slow(Exception):
    """The head does not come to its end."""


class _Idle(Exception):
    """No other request came."""


class Connection:
    def __init__(self, service: Service, line: Line, peer: Peer, new_id: Callable[[], str]) -> None:
        self._service = service
        self._line = line
        self._peer = peer
        self._new_id = new_id
        self._exchange: Exchange | None = None
        self._leaving = False
        self._served = 0  # requests

    @property
    def disposable(self) -> bool:
        """Between two requests, or a tunnel, which has no end of its own."""
        return self._exchange is None or self._exchange.tunnelling

    def make_room(self) -> bool:
        """Whether nothing is lost if this connection ends, as it must now."""
        idle = self._exchange is None and not self._leaving
        self._leaving = self._leaving or idle
        return idle

    def close(self) -> None:
        """Also one that was never served."""
        self._line.close()

    async def serve(self) -> None:
        """Until the client goes or misbehaves. Never raises but when it is cancelled."""
        try:
            if self._line.secure:
                with Scope(self._service.clock) as scope:
                    scope.limit(self._service.options.handshake, _Slow())
                    await self._line.handshake()
            while await self._one():
                pass
        except (OSError, _Slow, _Idle, CutShort):
            pass
        finally:
            self._line.close()

    async def _one(self) -> bool:
        """Whether another request may follow."""
        try:
            head = await self._head()
        except BadHead as error:
            return await self._refuse(error.status, error.message)
        except _Slow:
            return await self._refuse(408, "the request's head did not come in time")
        if head is None:
            return False
        incoming = Incoming(
            self._line, self._peer, head, self._request(head), Scope(self._service.clock), body_of(head)
        )
        self._served += 1
        self._exchange = Exchange(self._service, incoming)
        try:
            keep = await self._exchange.run()
        finally:
            self._exchange = None
        if not keep and (self._line.held or not incoming.body.ended):
            await self._linger()
        return keep and not self._service.stopping

    async def _head(self) -> RequestHead | None:
        options = self._service.options
        if self._line.held:
            await self._service.turns.take(NOBODY, EACH)  # many requests sent ahead leave others their turn
        elif self._line.secure:
            await asyncio.sleep(0)
        with Scope(self._service.clock) as scope:
            if not self._line.held:
                scope.limit(options.idle if self._served else options.head, _Idle())
            data = await read_head(self._line, options.longest_head, lambda: scope.limit(options.head, _Slow()))
        return None if data is None else parse_request(data, options.most_headers)

    def _request(self, head: RequestHead) -> Request:
        given = next((value for name, value in head.headers if name == _REQUEST_ID), b"")
        id = given.decode() if _ID.fullmatch(given) else self._new_id()
        return Request(head.method, head.path, head.headers, id)

    async def _refuse(self, status: int, message: str) -> bool:
        await self._line.write(encoded(problem(status, message), close=True))
        await self._linger()
        return False

    async def _linger(self) -> None:
        """A client that is still sending reads its answer only if the connection is not torn down under it."""
        if self._line.closed or not self._line.end():
            return
        options = self._service.options
        left = options.unread
        with Scope(self._service.clock) as scope:
            scope.limit(options.lingering, _Idle())
            while left > 0 and (data := await self._line.read()):
                left -= len(data)
                await asyncio.sleep(0)
