"""An internet that the test owns: names resolve to what it says, and every address leads to a listener on loopback.

No packet leaves the machine: connecting to "1.1.1.1" opens a connection to a server of the test and writes down what was asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from ipaddress import ip_address

from sandpool.base.clock import Clock, SystemClock
from sandpool.node.network.contract import NetworkOptions, NetworkRequest, Port
from sandpool.node.network.forbidden import Address
from sandpool.node.network.node_network import NodeNetwork
from sandpool.node.network.pod import PodNetwork
from sandpool.node.network.policy import Policies
from sandpool.node.network.route import Route
from support.api.policy_bodies import LABELS

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class OutsideWorld:
    def __init__(self) -> None:
        self.names: dict[str, list[Sequence[str]]] = {}  # answers in turn; the last one is repeated
        self.asked: list[str] = []
        self.dialled: list[tuple[str, int]] = []
        self.requests: list[bytes] = []  # what the default server was sent
        self.own: set[str] = set()  # addresses of this "machine"
        self.dead: set[str] = set()
        self.serve: Serve = self.hello
        self.hang: asyncio.Event | None = None  # a resolver that waits for it
        self._port = 0

    async def hello(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head)
        writer.write(HELLO)
        await writer.drain()

    async def resolve(self, name: str) -> Sequence[Address]:
        self.asked.append(name)
        if self.hang is not None:
            await self.hang.wait()
        answers = self.names.get(name)
        if not answers:
            raise OSError(f"no such name: {name}")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ip_address(text) for text in answer]

    async def connect(self, address: Address, port: int) -> socket.socket:
        self.dialled.append((str(address), port))
        if str(address) in self.dead:
            raise ConnectionRefusedError(111, "Connection refused")
        connection = socket.socket()
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
        except BaseException:
            connection.close()
            raise
        return connection

    def route(self, address: Address) -> Route:
        return Route.LOCAL if str(address) in self.own else Route.UNICAST

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[OutsideWorld]:
        tasks: set[asyncio.Task[None]] = set()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await self.serve(reader, writer)
            except (OSError, EOFError, asyncio.CancelledError):
                pass
            finally:
                tasks.discard(task)
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

        server = await asyncio.start_server(accepted, "127.0.0.1", 0, limit=1 << 20)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in tuple(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.wait_closed()


async def nobody_inside(port: int) -> socket.socket:
    raise AssertionError(f"nothing dials port {port}")


class Box:
    """One attached pod with a way out, as a client inside would use it."""

    def __init__(self, network: NodeNetwork, pod: PodNetwork, policies: Policies, port: int) -> None:
        self.network = network
        self.pod = pod
        self.policies = policies
        self.port = port

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, request: bytes, *, end: bool = False) -> bytes:
        """Everything that comes back until the end."""
        reader, writer = await self.open()
        try:
            writer.write(request)
            if end:
                writer.write_eof()
            return await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def get(self, url: str) -> bytes:
        return await self.ask(f"GET {url} HTTP/1.1\r\nHost: ignored\r\n\r\n".encode())

    async def tunnel(self, target: str) -> bytes:
        """The answer to CONNECT, and then the origin's to a request."""
        reader, writer = await self.open()
        try:
            writer.write(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head:
                return head + await reader.read()
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            return await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def listening() -> socket.socket:
    """As one that listens inside a sandbox."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    return listener


@contextlib.asynccontextmanager
async def box_with(
    world: OutsideWorld, policies: Policies, options: NetworkOptions = NetworkOptions(), clock: Clock | None = None
) -> AsyncIterator[Box]:
    network = NodeNetwork(
        policies, clock or SystemClock(), options, resolve=world.resolve, connect=world.connect, ask_route=world.route
    )
    wanted = NetworkRequest(uid="u1", namespace="team", name="box", labels=LABELS, ports=(Port(8080),))
    pod = await network.attach(wanted, nobody_inside)
    listener = listening()
    pod.serve_egress(listener)
    try:
        yield Box(network, pod, policies, listener.getsockname()[1])
    finally:
        await network.close()
