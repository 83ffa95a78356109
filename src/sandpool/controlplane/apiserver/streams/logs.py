"""The output of a container as an answer: sent as it comes, no faster than the client reads, until either side ends it.

A run that cannot be shown is known at the first step, so that one is waited for, for a moment, before the answer begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from sandpool.base.errors import NodeError
from sandpool.controlplane.apiserver.answer import of_error
from sandpool.controlplane.apiserver.exchange import Exchange, lines_of
from sandpool.kube.errors import ApiError, BadRequest, InternalError, NotFound
from sandpool.telemetry.log import logger

log = logger(__name__)

_LINES: Final = lines_of([(b"content-type", b"text/plain"), (b"cache-control", b"no-cache, private")])


class LogReply:
    status = 200

    def __init__(self, pieces: AsyncIterator[bytes], wait: float) -> None:
        self._pieces = pieces
        self._wait = wait

    async def deliver(self, exchange: Exchange) -> None:
        exchange.be_patient()  # `kubectl logs | less` may take hours to read
        try:
            async with asyncio.TaskGroup() as tasks:
                first = tasks.create_task(self._first())
                pump = tasks.create_task(self._pump(first, exchange))
                leaving = tasks.create_task(exchange.left())
                await asyncio.wait({pump, leaving}, return_when=asyncio.FIRST_COMPLETED)
                for task in (first, pump, leaving):
                    task.cancel()
        finally:
            if isinstance(self._pieces, AsyncGenerator):
                await self._pieces.aclose()

    async def _first(self) -> bytes | NodeError | None:
        try:
            return await anext(self._pieces, None)
        except NodeError as error:
            return error

    async def _pump(self, first: asyncio.Task[bytes | NodeError | None], exchange: Exchange) -> None:
        await asyncio.wait({first}, timeout=self._wait)
        if first.done() and isinstance(error := first.result(), NodeError):
            await of_error(_refusal(error)).deliver(exchange)
            return
        await exchange.start(self.status, _LINES)
        piece = await first
        try:
            while piece is not None:
                if isinstance(piece, NodeError):
                    raise piece
                await exchange.piece(piece)
                piece = await anext(self._pieces, None)
        except NodeError as error:
            log.warning("a log could not be read on", reason=error.reason, message=error.message)
        await exchange.end()


def _refusal(error: NodeError) -> ApiError:
    if error.reason == "NotFound":
        return NotFound(error.message)
    return BadRequest(error.message) if error.reason == "BadRequest" else InternalError(error.message)
