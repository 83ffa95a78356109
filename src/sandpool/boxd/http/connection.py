"""Serves one connection: requests one after the other, each answered before the next is read."""

from __future__ import annotations

import asyncio
import hmac
import sys
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass

from sandpool.boxd.http.body import Body, FileTransfer, Reader
from sandpool.boxd.http.head import LONGEST, Head, parse
from sandpool.boxd.http.reply import Answer, FromFile, Last, Reply, Streamed, Switched, head_of, refusal
from sandpool.wire.codes import Code, Refused

BUFFER = 256 * 1024


@dataclass(frozen=True, slots=True)
class Patience:
    """Time-outs in seconds, and a limit in bytes."""

    head: float = 30.0  # from the first byte of a request to the end of its head
    idle: float = 3600.0  # between requests
    lingering: float = 2.0  # for a client that is still sending a body which was refused
    unread: int = 64 << 20  # bytes that are still read from it


@dataclass(slots=True)
class Request:
    head: Head
    body: Body
    gone: HangUp  # set when the client has hung up


Handler = Callable[[Request], Awaitable[Answer]]


class _Protocol(asyncio.StreamReaderProtocol):
    """A stream that also reports that the client hung up while nothing is read."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.gone = HangUp()

    def eof_received(self) -> bool | None:
        self.gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(exc)


def protocol() -> tuple[_Protocol, Reader]:
    reader = Reader(limit=BUFFER)
    return _Protocol(reader), reader


class Connection:
    def __init__(
        self,
        reader: Reader,
        transport: asyncio.Transport,
        protocol: _Protocol,
        handler: Handler,
        token: str,
        said: Mapping[str, str],
        patience: Patience = Patience(),
    ) -> None:
        self._reader = reader
        self._straight = FileTransfer(reader, transport)
        self._writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
        self._gone = protocol.gone
        self._handler = handler
        self._token = token.encode()
        self._said = said  # headers of every response
        self._patience = patience
        self.idle = False  # between two requests

    async def serve(self) -> None:
        """Serves until the client closes the connection or breaks the protocol. Raises only CancelledError."""
        try:
            while await self._one():
                pass
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            pass
        except Exception:  # in the middle of a response: aborting is the only way left to report it
            traceback.print_exc(file=sys.stderr)
            self._writer.transport.abort()
        finally:
            self._writer.close()
            with suppress(ConnectionError, TimeoutError):
                await self._writer.wait_closed()

    async def _one(self) -> bool:
        """Serves one request; whether another one may follow."""
        try:
            head = await self._head()
        except Refused as error:
            await self._send(refusal(error), None, close=True)
            return False
        if head is None:
            return False
        request = Request(head, Body(self._reader, head.length, self._straight), self._gone)
        answer = await self._answer(request)
        if isinstance(answer, Switched):
            self._writer.write(head_of(101, {**self._said, **answer.headers}))
            await answer.run(self._reader, self._writer)
            return False
        keep = not head.close and request.body.ended
        await self._send(answer, head, close=not keep)
        if not request.body.ended:
            await self._linger()
        return keep

    async def _linger(self) -> None:
        """Keeps reading for a while: a client that is still sending would get a reset instead of the response."""
        try:
            self._writer.write_eof()
        except OSError:
            return  # already closed
        left = self._patience.unread
        async with asyncio.timeout(self._patience.lingering):
            while left > 0 and (data := await self._reader.read(BUFFER)):
                left -= len(data)

    async def _head(self) -> Head | None:
        async with asyncio.timeout(self._patience.idle) as limit:
            self.idle = True
            first = await self._reader.read(1)
            self.idle = False
            if not first:
                return None
            limit.reschedule(asyncio.get_running_loop().time() + self._patience.head)
            try:
                rest = await self._reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                raise Refused(Code.INVALID, "the request's head is too long") from None
        if len(rest) > LONGEST:
            raise Refused(Code.INVALID, "the request's head is too long")
        return parse(first + rest)

    async def _answer(self, request: Request) -> Answer:
        try:
            self._admit(request.head)
            if request.head.headers.get("expect", "").lower() == "100-continue":
                self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return await self._handler(request)
        except Refused as error:
            return refusal(error)
        except ConnectionError:
            raise
        except Exception:  # a bug must not end other connections
            traceback.print_exc(file=sys.stderr)
            return refusal(Refused(Code.INTERNAL, "boxd failed; its log says more"))

    def _admit(self, head: Head) -> None:
        if not self._token:
            return
        scheme, _, given = head.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), self._token)
        if scheme.lower() != "bearer" or not right:
            raise Refused(Code.UNAUTHENTICATED, "send the sandbox's token as Authorization: Bearer")

    async def _send(self, answer: Reply | Streamed | FromFile, head: Head | None, *, close: bool) -> None:
        headers = {**self._said, **answer.headers}
        if close:
            headers["connection"] = "close"
        bare = head is not None and head.method == "HEAD"
        if isinstance(answer, Reply):
            if answer.status not in (204, 304):
                headers.setdefault("content-length", str(len(answer.body)))
            self._writer.write(head_of(answer.status, headers) + (b"" if bare else answer.body))
            await self._writer.drain()
            return
        if isinstance(answer, FromFile):
            headers["content-length"] = str(answer.length)
            self._writer.write(head_of(answer.status, headers))
            with answer.file:
                if not bare and answer.length:
                    await self._send_file(answer)
            return
        begun = head_of(answer.status, headers | {"transfer-encoding": "chunked"})
        async with aclosing(answer.source) as source:
            if bare or not answer.prompt:
                self._writer.write(begun)
                begun = b""
            if not bare:
                await self._pour(begun, source)

    async def _send_file(self, answer: FromFile) -> None:
        loop = asyncio.get_running_loop()
        if self._writer.is_closing():
            raise ConnectionResetError("the client hung up")
        sent = await loop.sendfile(self._writer.transport, answer.file, answer.start, answer.length)
        if sent < answer.length:  # the announced content-length cannot be met
            raise ConnectionResetError("the file became shorter while it was read")

    async def _pour(self, begun: bytes, source: AsyncIterator[bytes]) -> None:
        writer = self._writer
        async for piece in source:
            last = isinstance(piece, Last)
            writer.write(b"".join((begun, b"%x\r\n" % len(piece), piece, b"\r\n0\r\n\r\n" if last else b"\r\n")))
            await writer.drain()
            begun = b""
            if last:
                return
        writer.write(begun + b"0\r\n\r\n")
        await writer.drain()


class HangUp(asyncio.Event):
    """Set when the client has hung up. Code that also waits for something else registers a callback, which needs no task."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[Callable[[], object]] = []

    def call(self, what: Callable[[], object]) -> None:
        self._calls.append(what)

    def forget(self, what: Callable[[], object]) -> None:
        self._calls.remove(what)

    def set(self) -> None:
        super().set()
        for what in tuple(self._calls):
            what()


async def until_hang_up(source: AsyncGenerator[bytes, None], gone: asyncio.Event) -> AsyncGenerator[bytes, None]:
    """Yields from the source until the client hangs up, also while the source yields nothing."""
    hung_up = asyncio.ensure_future(gone.wait())
    coming: asyncio.Future[bytes] | None = None
    try:
        while True:
            coming = asyncio.ensure_future(anext(source))
            await asyncio.wait((coming, hung_up), return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                raise ConnectionResetError("the client hung up")
            try:
                piece = coming.result()
            except StopAsyncIteration:
                return
            yield piece
    finally:
        hung_up.cancel()
        if coming is not None and not coming.done():
            coming.cancel()
            with suppress(asyncio.CancelledError):
                await coming
        await source.aclose()
