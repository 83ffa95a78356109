"""Serves one connection of a client: requests one after the other, each answered before the next is read.

An Exchange is one request and its response: it asks the gate, forwards the request or answers it, and reports how it ended.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from sandpool.base.shares import NOBODY
from sandpool.base.turns import EACH
from sandpool.router.answers import encoded, problem
from sandpool.router.cancel_scope import CancelScope
from sandpool.router.connection import Connection, CutShort, read_head
from sandpool.router.forward import BadResponse, Forward, ResponseTimeout
from sandpool.router.head import RequestHead, parse_request
from sandpool.router.incoming import ClientFailed, Incoming, Service, TooSlow, body_of
from sandpool.router.ports import NoAnswer
from sandpool.router.relay import WriteFailed
from sandpool.router.values import Admitted, Answer, Outcome, Peer, Request
from sandpool.telemetry.log import logger
from sandpool.wire.codes import Refused
from sandpool.wire.headers import REQUEST_ID
from sandpool.wire.http_body import BadBody
from sandpool.wire.http_head import BadHead

log = logger(__name__)

CLIENT_GONE = 499
"""A status for the logs only: the client is gone and gets no response. As nginx has it."""
_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_REQUEST_ID = REQUEST_ID.lower().encode()


class _Slow(Exception):
    """The client did not complete its request head in time."""


class _Idle(Exception):
    """No further request came in time."""


class ClientConnection:
    def __init__(self, service: Service, connection: Connection, peer: Peer, new_id: Callable[[], str]) -> None:
        self._service = service
        self._connection = connection
        self._peer = peer
        self._new_id = new_id
        self._exchange: Exchange | None = None
        self._leaving = False
        self._served = 0  # requests

    @property
    def disposable(self) -> bool:
        """Whether it may be closed at shutdown: idle, or a tunnel, which would never end by itself."""
        return self._exchange is None or self._exchange.tunnelling

    def make_room(self) -> bool:
        """Whether this connection was idle; then it must be closed now, to make room for another one."""
        idle = self._exchange is None and not self._leaving
        self._leaving = self._leaving or idle
        return idle

    def close(self) -> None:
        """Closes the connection, even one that was never served."""
        self._connection.close()

    async def serve(self) -> None:
        """Serves until the client leaves or breaks the protocol. Raises only if it is cancelled."""
        try:
            if self._connection.secure:
                with CancelScope(self._service.clock) as scope:
                    scope.limit(self._service.options.handshake, _Slow())
                    await self._connection.handshake()
            while await self._one():
                pass
        except (OSError, _Slow, _Idle, CutShort):
            pass
        finally:
            self._connection.close()

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
            self._connection, self._peer, head, self._request(head), CancelScope(self._service.clock), body_of(head)
        )
        self._served += 1
        self._exchange = Exchange(self._service, incoming)
        try:
            keep = await self._exchange.run()
        finally:
            self._exchange = None
        if not keep and (self._connection.held or not incoming.body.ended):
            await self._linger()
        return keep and not self._service.stopping

    async def _head(self) -> RequestHead | None:
        options = self._service.options
        if self._connection.held:
            await self._service.turns.take(NOBODY, EACH)  # a client that pipelines requests takes turns with others
        elif self._connection.secure:
            await asyncio.sleep(0)
        with CancelScope(self._service.clock) as scope:
            if not self._connection.held:
                scope.limit(options.idle if self._served else options.head, _Idle())
            data = await read_head(self._connection, options.longest_head, lambda: scope.limit(options.head, _Slow()))
        return None if data is None else parse_request(data, options.most_headers)

    def _request(self, head: RequestHead) -> Request:
        given = next((value for name, value in head.headers if name == _REQUEST_ID), b"")
        id = given.decode() if _ID.fullmatch(given) else self._new_id()
        return Request(head.method, head.path, head.headers, id)

    async def _refuse(self, status: int, message: str) -> bool:
        await self._connection.write(encoded(problem(status, message), close=True))
        await self._linger()
        return False

    async def _linger(self) -> None:
        """Reads on for a while: a client that is still sending would lose its response to a reset."""
        if self._connection.closed or not self._connection.end():
            return
        options = self._service.options
        left = options.unread
        with CancelScope(self._service.clock) as scope:
            scope.limit(options.lingering, _Idle())
            while left > 0 and (data := await self._connection.read()):
                left -= len(data)
                await asyncio.sleep(0)


class Exchange:
    def __init__(self, service: Service, incoming: Incoming) -> None:
        self._service = service
        self._in = incoming
        self._began = service.clock.monotonic()
        self._decided: Admitted | Answer | None = None
        self._forward: Forward | None = None
        self._status = 0
        self._error = ""

    @property
    def tunnelling(self) -> bool:
        return self._forward is not None and self._forward.tunnelling

    async def run(self) -> bool:
        """Whether the client's connection can be reused. Raises OSError if the client cannot be answered."""
        try:
            with self._in.scope:
                self._in.watch(True)
                return await self._serve()
        except asyncio.CancelledError:
            self._error = "stopped"
            if not self.tunnelling:
                self._in.client.abort()
            raise
        except Exception as error:
            return await self._failed(error)
        finally:
            self._in.watch(False)
            self._report()

    async def _serve(self) -> bool:
        self._decided = await self._decide()
        if isinstance(self._decided, Answer):
            return await self._answer(self._decided)
        self._forward = Forward(self._service, self._in, self._decided)
        return await self._forward.run()

    async def _decide(self) -> Admitted | Answer:
        try:
            self._in.prime()
            return await self._service.gate.admit(self._in.request, self._in.peer, self._read)
        except BadBody as error:
            return problem(400, str(error))
        except Refused as error:
            return problem(error.code.status, error.message, error.code.word)
        except ClientFailed:
            raise
        except Exception as error:
            log.error("the gate failed", exc=error, id=self._in.request.id)
            return problem(500, "the router failed; its log says more")

    async def _read(self, most: int) -> bytes:
        return await self._in.read(most, self._service.options.body)

    async def _answer(self, answer: Answer) -> bool:
        incoming = self._in
        keep = incoming.head.keep and incoming.body.ended and not self._service.stopping
        self._status = answer.status
        bare = incoming.head.method == b"HEAD"
        data = encoded(answer, bare=bare, close=not keep, id=incoming.request.id)
        with CancelScope(self._service.clock) as scope:  # a client that reads nothing must not keep its connection
            scope.limit(self._service.options.answer, TimeoutError("the client does not read its response"))
            await incoming.client.write(data)
        return keep

    async def _failed(self, error: Exception) -> bool:
        """Answers with the error, if no response has begun."""
        self._error, answer = _meaning(error)
        if self._error == "internal":
            log.error("a request failed", exc=error, id=self._in.request.id)
        if isinstance(error, ClientFailed | OSError) and (self._in.client.ended or self._begun):
            answer = None
        if self._begun or answer is None:
            self._in.client.abort()
            return False
        if self._decided is None:
            self._decided = answer
        return await self._answer(answer)

    @property
    def _begun(self) -> bool:
        return self._forward is not None and self._forward.status != 0

    def _report(self) -> None:
        forward = self._forward
        status = forward.status if forward is not None and forward.status else self._status or CLIENT_GONE
        sent = forward.sent.bytes if forward is not None else 0
        seconds = self._service.clock.monotonic() - self._began
        outcome = Outcome(status, self._in.received.bytes, sent, seconds, self._error)
        decided = self._decided or problem(CLIENT_GONE, "the client hung up")
        try:
            self._service.gate.finished(self._in.request, self._in.peer, decided, outcome)
        except Exception as error:
            log.error("the gate failed to record how a request ended", exc=error)


def _meaning(error: Exception) -> tuple[str, Answer | None]:
    """One word for the audit log, and the answer for the client; None: it is gone."""
    match error:
        case NoAnswer():
            return "refused", problem(502, str(error))
        case ResponseTimeout():
            return "timeout", problem(504, "the sandbox did not answer in time; ask again with more X-Sandbox-Timeout")
        case BadResponse():
            return "reset", problem(502, str(error))
        case WriteFailed():
            return "reset", problem(502, "the sandbox hung up before the request was sent")
        case TooSlow():
            return "client", problem(408, "the request's body did not come in time")
        case ClientFailed():
            return "client", problem(400, str(error))
        case OSError():
            return "client", None
        case _:
            return "internal", problem(500, "the router failed; its log says more", "INTERNAL")
