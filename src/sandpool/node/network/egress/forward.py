"""One forwarded request: its head and body to the origin, the answer back, and then the end of both connections.

One request for each connection: there is no second one that could be taken for a part of the first, or sent to the wrong origin.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from http import HTTPStatus

from sandpool.base.portions import Portions
from sandpool.node.network.egress import response
from sandpool.node.network.egress.chunks import Chunks
from sandpool.node.network.egress.reader import Reader
from sandpool.node.network.egress.refusal import Refusal
from sandpool.node.network.egress.request import Request
from sandpool.node.network.flow import Pace, finish

_MAX_INTERIM = 8
_SHORT = 256  # bytes of chunks that are taken apart without asking


class Forward:
    def __init__(
        self,
        request: Request,
        client: socket.socket,
        origin: socket.socket,
        touch: Callable[[], None],
        pace: Pace,
        turn: Pace,
    ) -> None:
        """`turn` is for bytes that are taken apart, `pace` for those that are carried."""
        self._request = request
        self._client = client
        self._origin = origin
        self._touch = touch
        self._pace = pace
        self._turn = turn
        self.answered = False  # whether the client has had a byte of an answer
        self.sent = False  # whether the origin has had the whole body

    async def run(self, reader: Reader, seconds: float) -> None:
        """Refusal only before the client was answered anything; OSError when either side breaks."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._origin, self._request.onward())
        sending = asyncio.ensure_future(self._send(reader))
        receiving = asyncio.ensure_future(self._receive(seconds))
        try:
            await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not receiving.done() and isinstance(sending.exception(), Refusal):
                sending.result()  # a body that makes no sense: the origin must not take it for a whole one
            await receiving  # an origin may answer, and close, before it has read the whole body
        finally:
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)

    async def _send(self, reader: Reader) -> None:
        """The body, exactly. What comes behind it is read and dropped, so that the client's end is noticed."""
        chunks = Chunks() if self._request.chunked else None
        portions = Portions()
        left = self._request.length
        while (chunks is not None and not chunks.ended) or left > 0:
            data = await reader.some()
            if not data:
                finish(self._origin)
                return
            if chunks is None:
                part = data[:left]
                left -= len(part)
            else:
                part = await self._of_chunks(chunks, portions, reader, data)
            await self._pass(self._origin, part)
        self.sent = True
        while data := await reader.some():
            await self._pace(len(data))
        finish(self._origin)

    async def _of_chunks(self, chunks: Chunks, portions: Portions, reader: Reader, data: bytes) -> bytes:
        """What of it belongs to the body, as far as it is looked at now: chunks may be of one byte each."""
        size = portions.cut(len(data))
        if size > _SHORT:
            await self._turn(portions.weight)
        before = chunks.found
        part = data[: chunks.feed(data[:size])]
        portions.found(chunks.found - before)
        if not chunks.ended:
            reader.put_back(data[size:])
        return part

    async def _receive(self, seconds: float) -> None:
        reader = Reader(self._origin)
        for _ in range(_MAX_INTERIM):
            answer = await self._head(reader, seconds)
            self.answered = True
            await self._pass(self._client, answer.onward())
            if not answer.interim:
                break
        else:
            raise OSError("the origin never came to its answer")
        while data := await reader.some():
            await self._pass(self._client, data)

    async def _head(self, reader: Reader, seconds: float) -> response.Response:
        try:
            async with asyncio.timeout(seconds):
                head = await reader.head()
            if not head:
                raise EOFError
            return response.parse(head)
        except TimeoutError:
            raise self._refusal(HTTPStatus.GATEWAY_TIMEOUT, "did not answer in time; try again") from None
        except (EOFError, OSError):
            raise self.broken() from None
        except Refusal:
            raise self._refusal(HTTPStatus.BAD_GATEWAY, "answered with something that is no HTTP/1.1") from None

    def broken(self) -> Refusal:
        return self._refusal(HTTPStatus.BAD_GATEWAY, "ended the connection without an answer; try again")

    def _refusal(self, status: HTTPStatus, says: str) -> Refusal:
        return Refusal(status, "Origin", f"{self._request.host} port {self._request.port} {says}")

    async def _pass(self, target: socket.socket, data: bytes) -> None:
        self._touch()
        await self._pace(len(data))
        await asyncio.get_running_loop().sock_sendall(target, data)
        self._touch()
