"""The egress proxy of one pod: each connection carries one request, which is checked against the policies and then relayed.

All input is hostile: its time, size and number are limited, and nothing is assumed to be HTTP. A connection is registered with its
address before it is opened, so that a policy that changes meanwhile closes it as well.

There is one request per connection, so no second request could be smuggled as part of the first or sent to the wrong origin.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from sandpool.base.clock import Clock
from sandpool.base.rate_limit import TokenBucket
from sandpool.base.turns import Portions
from sandpool.node.network.acceptor import Acceptor
from sandpool.node.network.contract import NetworkOptions
from sandpool.node.network.egress import messages
from sandpool.node.network.egress.destination import AskRoute, destinations, judged, refused
from sandpool.node.network.egress.http1 import Chunks, Reader, Refusal, answer
from sandpool.node.network.egress.messages import Request, parse_request
from sandpool.node.network.egress.outside import Connect, Lookups
from sandpool.node.network.forbidden import Address
from sandpool.node.network.policy import ENTRY, Rules, verdict
from sandpool.node.network.relay import PIECE, Idle, InTurn, Pace, Throttle, finish, prompt, relay, reset
from sandpool.node.network.slots import Slots
from sandpool.telemetry.log import logger

_MAX_INTERIM = 8
_SHORT = 256  # bytes of chunks that are parsed without waiting for a turn


class Forward:
    """Relays one request to the origin, and its response back to the client."""

    def __init__(
        self,
        request: Request,
        client: socket.socket,
        origin: socket.socket,
        touch: Callable[[], None],
        pace: Pace,
        turn: Pace,
    ) -> None:
        """`turn` is waited for before parsing bytes, `pace` before relaying them."""
        self._request = request
        self._client = client
        self._origin = origin
        self._touch = touch
        self._pace = pace
        self._turn = turn
        self.answered = False  # whether any byte of the response was sent to the client
        self.sent = False  # whether the whole body was sent to the origin

    async def run(self, reader: Reader, seconds: float) -> None:
        """Relays the exchange. Raises Refusal only while nothing of the response was sent; OSError when either connection breaks."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._origin, self._request.onward())
        sending = asyncio.ensure_future(self.send(reader))
        receiving = asyncio.ensure_future(self._receive(seconds))
        try:
            await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not receiving.done() and isinstance(sending.exception(), Refusal):
                sending.result()  # the body is invalid: raise, so that the origin does not take it for complete
            await receiving  # an origin may respond, and close, before it has read the whole body
        finally:
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)

    async def send(self, reader: Reader) -> None:
        """Sends exactly the body. Reads and drops bytes after it, to notice when the client closes."""
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
        """Returns the part of the data that belongs to the body. Parses a limited portion at a time, because chunks may have one byte each."""
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
            raise OSError("the origin sent only interim responses")
        while data := await reader.some():
            await self._pass(self._client, data)

    async def _head(self, reader: Reader, seconds: float) -> messages.Response:
        try:
            async with asyncio.timeout(seconds):
                head = await reader.head()
            if not head:
                raise EOFError
            return messages.parse_response(head)
        except TimeoutError:
            raise self._refusal(HTTPStatus.GATEWAY_TIMEOUT, "did not answer in time; try again") from None
        except (EOFError, OSError):
            raise self.broken() from None
        except Refusal:
            raise self._refusal(HTTPStatus.BAD_GATEWAY, "answered with something that is not HTTP/1.1") from None

    def broken(self) -> Refusal:
        return self._refusal(HTTPStatus.BAD_GATEWAY, "ended the connection without an answer; try again")

    def _refusal(self, status: HTTPStatus, says: str) -> Refusal:
        return Refusal(status, "Origin", f"{self._request.host} port {self._request.port} {says}")

    async def _pass(self, target: socket.socket, data: bytes) -> None:
        self._touch()
        await self._pace(len(data))
        await asyncio.get_running_loop().sock_sendall(target, data)
        self._touch()


log = logger(__name__)
_LINES = 5  # log lines at once for a pod, then one every ten seconds
_LINE_RATE = 0.1

Counts = Counter[str]
"""Counts by outcome, which is `connected` or the reason of a refusal. A closed set."""


class EgressLog:
    """Counts and logs the requests of one pod. `counts` is shared by all pods."""

    def __init__(self, pod: str, counts: Counts, clock: Clock) -> None:
        self._pod = pod
        self._counts = counts
        self._clock = clock
        self._lines = TokenBucket(_LINE_RATE, _LINES)
        self._unsaid = 0

    def connected(self) -> None:
        self._counts["connected"] += 1

    def refused(self, refusal: Refusal, request: Request | None) -> None:
        """Counts and logs a refusal. Logs only the host and port of a request, because paths and headers may contain secrets."""
        self._counts[refusal.reason] += 1
        if not self._lines.take(self._clock.monotonic()):
            self._unsaid += 1
            return
        unsaid, self._unsaid = self._unsaid, 0
        to = f"{request.host}:{request.port}" if request is not None else ""
        log.info("egress refused", pod=self._pod, to=to, reason=refusal.reason, cause=refusal.message, unsaid=unsaid)


_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_LINGER = 0.5  # seconds for a client to read the response while it is still sending


@dataclass(frozen=True, slots=True)
class ProxyContext:
    """What the proxies of all pods share."""

    clock: Clock
    options: NetworkOptions
    connect: Connect
    route: AskRoute


class EgressProxy:
    """Serves the proxy connections of one pod."""

    def __init__(
        self,
        context: ProxyContext,
        rules: Callable[[], Awaitable[Rules]],
        lookups: Lookups,
        log: EgressLog,
        turn: Pace,
    ) -> None:
        """`turn(amount)` waits for the tenant's turn to do that much work."""
        self._context = context
        self._rules = rules
        self._lookups = lookups
        self._log = log
        self._turn = turn
        options = context.options
        self._bytes = Throttle(context.clock, options.egress_rate, options.egress_rate / 4)
        self._requests = Throttle(context.clock, options.egress_requests, options.egress_requests * 3)
        self._open: dict[asyncio.Task[object], tuple[Address, int]] = {}
        self._acceptors: list[Acceptor] = []

    def serve(self, listener: socket.socket, slots: Slots) -> None:
        self._acceptors.append(Acceptor(listener, slots, self._serve, self._context.clock))

    async def recheck(self) -> None:
        """Closes connections that are no longer allowed. Other tenants get turns between two connections."""
        for task, target in tuple(self._open.items()):
            rules = await self._rules()
            await self._turn(ENTRY * rules.entries)
            if self._open.get(task) == target and not verdict(rules, *target).allowed:
                task.cancel()

    async def close(self) -> None:
        for acceptor in self._acceptors:
            await acceptor.close()
        await self._lookups.close()

    async def _serve(self, client: socket.socket) -> None:
        request: Request | None = None
        reader = Reader(client)
        try:
            await self._requests.take(1)
            request = await self._read_request(reader)
            if request is not None:
                await self._handle(request, reader, client)
        except Refusal as refusal:
            self._log.refused(refusal, request)
            await self._send_refusal(client, refusal)
        except EOFError:
            pass

    async def _read_request(self, reader: Reader) -> Request | None:
        try:
            async with asyncio.timeout(self._context.options.head_timeout):
                head = await reader.head()
        except TimeoutError:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "Slow", "the head of the request took too long") from None
        return parse_request(head) if head else None

    async def _handle(self, request: Request, reader: Reader, client: socket.socket) -> None:
        addresses = await destinations(request, await self._rules(), self._lookups, self._context.route)
        task = asyncio.current_task()
        assert task is not None
        try:
            origin = await self._first_of(request, addresses, task)
            with contextlib.closing(origin), Idle(self._context.clock, self._context.options.idle_timeout) as idle:
                self._log.connected()
                prompt(origin)
                if request.tunnel:
                    await self._tunnel(client, origin, reader, idle)
                else:
                    await self._forward(request, client, origin, reader, idle)
        finally:
            self._open.pop(task, None)

    async def _first_of(
        self, request: Request, addresses: Sequence[Address], task: asyncio.Task[object]
    ) -> socket.socket:
        """Connects to the first address that accepts. Each was checked before, and is checked again if much time may have passed."""
        status, says = HTTPStatus.BAD_GATEWAY, "cannot be connected to"
        for address in addresses:
            found = judged(await self._rules(), address, request.port, self._context.route)
            if not found.allowed:
                raise refused(request, found)
            self._open[task] = (address, request.port)
            try:
                async with asyncio.timeout(self._context.options.connect_timeout):
                    return await self._context.connect(address, request.port)
            except TimeoutError:
                status, says = HTTPStatus.GATEWAY_TIMEOUT, "does not answer"
            except OSError as error:
                status, says = HTTPStatus.BAD_GATEWAY, f"cannot be connected to: {error.strerror or 'it failed'}"
        raise Refusal(status, "Unreachable", f"{request.host} port {request.port} {says}; check it and try again")

    async def _tunnel(self, client: socket.socket, origin: socket.socket, reader: Reader, idle: Idle) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, _ESTABLISHED)
        early = reader.kept()
        if early:  # sent before the 200 response
            await self._bytes.take(len(early))
            await loop.sock_sendall(origin, early)
        await relay(client, origin, idle.touch, InTurn(self._turn, self._bytes.take))

    async def _forward(
        self, request: Request, client: socket.socket, origin: socket.socket, reader: Reader, idle: Idle
    ) -> None:
        forward = Forward(request, client, origin, idle.touch, InTurn(self._turn, self._bytes.take), self._turn)
        try:
            await forward.run(reader, self._context.options.answer_timeout)
        except Refusal:
            if not forward.answered:
                raise
            reset(client)
        except OSError as error:
            if not forward.answered:
                raise forward.broken() from error
            reset(client)  # the client must not take a partial response for a complete one
            raise
        if not forward.sent:
            await self._linger(client)

    async def _send_refusal(self, client: socket.socket, refusal: Refusal) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                await asyncio.get_running_loop().sock_sendall(client, answer(refusal))
            await self._linger(client)

    async def _linger(self, client: socket.socket) -> None:
        """Reads a little of what the client still sends: closing a socket with unread bytes sends a reset, which could destroy the response
        before the client has read it."""
        loop = asyncio.get_running_loop()
        finish(client)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                while data := await loop.sock_recv(client, PIECE):
                    await self._bytes.take(len(data))
