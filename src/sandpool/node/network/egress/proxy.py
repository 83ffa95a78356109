"""The egress proxy of one pod: each connection asks for one thing, which is judged and then carried.

Everything that comes in is hostile: it has time, size and number, and none of it is trusted to be HTTP. A connection is known
with its address before it is made, so that a policy that changes meanwhile cuts it, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from sandpool.base.clock import Clock
from sandpool.node.network.acceptor import Acceptor
from sandpool.node.network.egress.account import Account
from sandpool.node.network.egress.destination import AskRoute, destinations, judged, refused
from sandpool.node.network.egress.forward import Forward
from sandpool.node.network.egress.lookups import Lookups
from sandpool.node.network.egress.outside import Connect
from sandpool.node.network.egress.reader import Reader
from sandpool.node.network.egress.refusal import Refusal, answer
from sandpool.node.network.egress.request import Request, parse
from sandpool.node.network.flow import PIECE, Idle, InTurn, Pace, finish, prompt, relay, reset
from sandpool.node.network.forbidden import Address
from sandpool.node.network.options import NetworkOptions
from sandpool.node.network.pace import Bucket
from sandpool.node.network.policy import ENTRY, Rules, verdict
from sandpool.node.network.slots import Slots

_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_LINGER = 0.5  # seconds for a client to read an answer while it still sends


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the proxies of all pods have in common."""

    clock: Clock
    options: NetworkOptions
    connect: Connect
    route: AskRoute


class EgressProxy:
    def __init__(
        self,
        around: Surroundings,
        rules: Callable[[], Awaitable[Rules]],
        lookups: Lookups,
        account: Account,
        turn: Pace,
    ) -> None:
        """`turn` waits for the tenant's turn to have so much work done."""
        self._around = around
        self._rules = rules
        self._lookups = lookups
        self._account = account
        self._turn = turn
        options = around.options
        self._bytes = Bucket(around.clock, options.egress_rate, options.egress_rate / 4)
        self._requests = Bucket(around.clock, options.egress_requests, options.egress_requests * 3)
        self._open: dict[asyncio.Task[object], tuple[Address, int]] = {}
        self._acceptors: list[Acceptor] = []

    def serve(self, listener: socket.socket, slots: Slots) -> None:
        self._acceptors.append(Acceptor(listener, slots, self._serve, self._around.clock))

    async def recheck(self) -> None:
        """Cuts what is no longer allowed; the tenant has others' turns between two connections."""
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
            request = await self._asked(reader)
            if request is not None:
                await self._carry(request, reader, client)
        except Refusal as refusal:
            self._account.refused(refusal, request)
            await self._tell(client, refusal)
        except EOFError:
            pass

    async def _asked(self, reader: Reader) -> Request | None:
        try:
            async with asyncio.timeout(self._around.options.head_timeout):
                head = await reader.head()
        except TimeoutError:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "Slow", "the head of the request took too long") from None
        return parse(head) if head else None

    async def _carry(self, request: Request, reader: Reader, client: socket.socket) -> None:
        addresses = await destinations(request, await self._rules(), self._lookups, self._around.route)
        task = asyncio.current_task()
        assert task is not None
        try:
            origin = await self._first_of(request, addresses, task)
            with contextlib.closing(origin), Idle(self._around.clock, self._around.options.idle_timeout) as idle:
                self._account.connected()
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
        """Connects to the first address that answers; each was judged, and is judged again if much time may have passed."""
        status, says = HTTPStatus.BAD_GATEWAY, "cannot be connected to"
        for address in addresses:
            found = judged(await self._rules(), address, request.port, self._around.route)
            if not found.allowed:
                raise refused(request, found)
            self._open[task] = (address, request.port)
            try:
                async with asyncio.timeout(self._around.options.connect_timeout):
                    return await self._around.connect(address, request.port)
            except TimeoutError:
                status, says = HTTPStatus.GATEWAY_TIMEOUT, "does not answer"
            except OSError as error:
                status, says = HTTPStatus.BAD_GATEWAY, f"cannot be connected to: {error.strerror or 'it failed'}"
        raise Refusal(status, "Unreachable", f"{request.host} port {request.port} {says}; check it and try again")

    async def _tunnel(self, client: socket.socket, origin: socket.socket, reader: Reader, idle: Idle) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, _ESTABLISHED)
        early = reader.kept()
        if early:  # sent before it was told to
            await self._bytes.take(len(early))
            await loop.sock_sendall(origin, early)
        await relay(client, origin, idle.touch, InTurn(self._turn, self._bytes.take))

    async def _forward(
        self, request: Request, client: socket.socket, origin: socket.socket, reader: Reader, idle: Idle
    ) -> None:
        forward = Forward(request, client, origin, idle.touch, InTurn(self._turn, self._bytes.take), self._turn)
        try:
            await forward.run(reader, self._around.options.answer_timeout)
        except Refusal:
            if not forward.answered:
                raise
            reset(client)
        except OSError as error:
            if not forward.answered:
                raise forward.broken() from error
            reset(client)  # what it has of the answer is not all of it
            raise
        if not forward.sent:
            await self._linger(client)

    async def _tell(self, client: socket.socket, refusal: Refusal) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                await asyncio.get_running_loop().sock_sendall(client, answer(refusal))
            await self._linger(client)

    async def _linger(self, client: socket.socket) -> None:
        """Reads a little of what still comes: to close with unread bytes would take the answer away from the client."""
        loop = asyncio.get_running_loop()
        finish(client)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                while data := await loop.sock_recv(client, PIECE):
                    await self._bytes.take(len(data))
