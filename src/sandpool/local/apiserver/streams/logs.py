"""The output of a container as an answer: sent as it comes, no faster than the client reads, until either side ends it.

A run that cannot be shown is known at the first step, so that one is waited for, for a moment, before the answer begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final

from sandpool.kube.errors import ApiError, BadRequest, InternalError, NotFound
from sandpool.local.apiserver.answer import Receive, Send, of_error
from sandpool.local.errors import NodeError
from sandpool.telemetry.log import logger

log = logger(__name__)

_START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"cache-control", b"no-cache, private")],
}


class LogReply:
    status = 200

    def __init__(self, pieces: AsyncIterator[bytes], patience: Callable[[], None] | None, wait: float) -> None:
        self._pieces = pieces
        self._patience = patience
        self._wait = wait

    async def deliver(self, receive: Receive, send: Send) -> None:
        if self._patience is not None:
            self._patience()  # `kubectl logs | less` may take hours to read
        try:
            async with asyncio.TaskGroup() as tasks:
                first = tasks.create_task(self._first())
                pump = tasks.create_task(self._pump(first, receive, send))
                leaving = tasks.create_task(_left(receive))
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

    async def _pump(self, first: asyncio.Task[bytes | NodeError | None], receive: Receive, send: Send) -> None:
        await asyncio.wait({first}, timeout=self._wait)
        if first.done() and isinstance(error := first.result(), NodeError):
            await of_error(_refusal(error)).deliver(receive, send)
            return
        await send(_START)
        piece = await first
        try:
            while piece is not None:
                if isinstance(piece, NodeError):
                    raise piece
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = await anext(self._pieces, None)
        except NodeError as error:
            log.warning("a log could not be read on", reason=error.reason, message=error.message)
        await send({"type": "http.response.body", "body": b""})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _refusal(error: NodeError) -> ApiError:
    if error.reason == "NotFound":
        return NotFound(error.message)
    return BadRequest(error.message) if error.reason == "BadRequest" else InternalError(error.message)
