"""One request and what comes of it: asks the gate, has the request carried out, and tells how it went.

Errors before the response has begun become an answer; errors after that cut the connection, so that nobody takes a part for the whole.
However it ends, the gate hears of it once.
"""

from __future__ import annotations

import asyncio

from sandpool.router.answers import encoded, problem
from sandpool.router.body import BadBody
from sandpool.router.forward import BadResponse, Forward, Late
from sandpool.router.incoming import ClientFailed, Incoming, Service, TooSlow
from sandpool.router.ports import NoAnswer
from sandpool.router.scope import Scope
from sandpool.router.splice import WriteFailed
from sandpool.router.values import Admitted, Answer, Outcome
from sandpool.telemetry.log import logger
from sandpool.wire.codes import Refused

log = logger(__name__)

CLIENT_GONE = 499
"""Told to nobody: nobody is there."""


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
        """Whether the client's connection can go on. Raises OSError when it cannot even be answered."""
        try:
            with self._in.scope:
                self._in.watch(True)
                return await self._carry_out()
        except asyncio.CancelledError:
            self._error = "stopped"
            if not self.tunnelling:
                self._in.client.abort()
            raise
        except Exception as error:
            return await self._failed(error)
        finally:
            self._in.watch(False)
            self._tell_gate()

    async def _carry_out(self) -> bool:
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
        with Scope(self._service.clock) as scope:  # who reads nothing needs no token for it, and must not keep a place
            scope.limit(self._service.options.answer, TimeoutError("the client does not take its answer"))
            await incoming.client.write(data)
        return keep

    async def _failed(self, error: Exception) -> bool:
        """Says it if that is still possible."""
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

    def _tell_gate(self) -> None:
        forward = self._forward
        status = forward.status if forward is not None and forward.status else self._status or CLIENT_GONE
        sent = forward.sent.bytes if forward is not None else 0
        seconds = self._service.clock.monotonic() - self._began
        outcome = Outcome(status, self._in.received.bytes, sent, seconds, self._error)
        decided = self._decided or problem(CLIENT_GONE, "the client hung up")
        try:
            self._service.gate.finished(self._in.request, self._in.peer, decided, outcome)
        except Exception as error:
            log.error("the gate cannot hear how a request ended", exc=error)


def _meaning(error: Exception) -> tuple[str, Answer | None]:
    """One word for the audit log, and what the client is told; None: it is gone."""
    match error:
        case NoAnswer():
            return "refused", problem(502, str(error))
        case Late():
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
