"""HTTP clients for pulls, each of which connects only to addresses that its reach allows.

The address is checked where the socket is created, after the name was resolved: a name that resolves differently a moment later gains
nothing. A client is never used for another reach, so no open connection is either. Through a proxy it is the proxy that resolves names
and connects; the proxy itself is the operator's and is not checked. Pulls never get the last open files of this process, and a registry
cannot send more than its `ReceiveBudget`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cache, partial
from ipaddress import ip_address

import aiohttp
from aiohttp import AddrInfoType, SocketFactoryType
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from sandpool.base import open_files as descriptors
from sandpool.base.shares import OPERATOR
from sandpool.kube.tls import agree_cheaply
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.pull_slots import PullSlot
from sandpool.node.images.registry_policy import Reach, may_connect
from sandpool.node.network.egress.outside import Lookups, LookupSlots, resolve
from sandpool.node.network.forbidden import Address
from sandpool.node.network.route import Route, route
from sandpool.version import __version__

HEAD_BYTES = 3 << 19  # bytes that may arrive before the parser consumes any; 3/4 MB were observed
CONTENT_PER_OVERHEAD = 8  # one byte of overhead is allowed for so many bytes of content


class ReceiveBudget:
    """How many bytes a registry may still send for one pull, over all its connections.

    HTTP lets a server send any amount of overhead: interim responses, chunks of one byte, chunk extensions. All of it is parsed in the
    process that serves everybody. So each response allows for some overhead and content that was consumed for a
    little more; a server that sends beyond that is cut off.
    """

    def __init__(self) -> None:
        self._left = 0

    def expects(self) -> None:
        """Allows for the head of a response, or a body of which nothing was consumed yet."""
        self._left += HEAD_BYTES

    def taken(self, content: int) -> None:
        self._left += content + content // CONTENT_PER_OVERHEAD

    def received(self, size: int) -> bool:
        """Whether that was still allowed."""
        self._left -= size
        return self._left >= 0


class MeteredProtocol(asyncio.Protocol):
    """Sits between a connection and its HTTP parser; data beyond the budget is not parsed, and the connection is aborted."""

    def __init__(self, meter: ReceiveBudget, transport: asyncio.Transport, reader: asyncio.Protocol) -> None:
        self._meter = meter
        self._transport = transport
        self._reader = reader

    def data_received(self, data: bytes) -> None:
        if self._meter.received(len(data)):
            self._reader.data_received(data)
        else:
            self._transport.abort()

    def eof_received(self) -> bool | None:
        return self._reader.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._reader.connection_lost(exc)

    def pause_writing(self) -> None:
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        self._reader.resume_writing()


def meter_transport(meter: ReceiveBudget, transport: asyncio.Transport) -> None:
    """From now on the connection counts against the budget; no effect if it already does."""
    reader = transport.get_protocol()
    if not isinstance(reader, MeteredProtocol):
        assert isinstance(reader, asyncio.Protocol)
        transport.set_protocol(MeteredProtocol(meter, transport, reader))


class Resolver(AbstractResolver):
    """Resolves registry names for the connections of one pull, in threads of their own.

    Whoever names an image may also run the name server of its registry, and let it never answer. The few threads of the event loop are
    needed for everything else.
    """

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._lookups.ask(host)
        wanted = (each for each in found if family in (socket.AF_UNSPEC, _family(each.version)))
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=_family(address.version),
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in wanted
        ]

    async def close(self) -> None:
        await self._lookups.close()


def _family(version: int) -> socket.AddressFamily:
    return socket.AF_INET if version == 4 else socket.AF_INET6


AskRoute = Callable[[Address], Route]
TakeSlot = Callable[[], AbstractAsyncContextManager[PullSlot]]


class OutOfReach(PermissionError):
    """An address that must not be connected to."""


class RegistryConnections:
    """The HTTP clients of one pull. `large` takes a slot for a document that needs much memory, which tenants share; `got` is called with
    the size of all content that comes; `lookups` resolves names."""

    def __init__(
        self,
        options: ImageOptions,
        large: TakeSlot,
        got: Callable[[int], object] = lambda size: None,
        *,
        ask_route: AskRoute = route,
        lookups: Lookups | None = None,
    ) -> None:
        self._resolver = Resolver(lookups or Lookups(LookupSlots(resolve, 1), 1, options.patience, OPERATOR))
        self.meter = ReceiveBudget()
        self.large = large
        self._got = got
        self._options = options
        self._route = ask_route
        self._clients: dict[Reach | None, aiohttp.ClientSession] = {}

    def to(self, reach: Reach, *, proxied: bool) -> aiohttp.ClientSession:
        key = None if proxied else reach
        if key not in self._clients:
            self._clients[key] = _client(self._options, key, self._route, self.meter, self._resolver)
        return self._clients[key]

    def taken(self, content: int) -> None:
        self.meter.taken(content)
        self._got(content)

    async def __aenter__(self) -> RegistryConnections:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.close()
        await self._resolver.close()


class MeteredConnector(aiohttp.TCPConnector):
    """Returns metered connections. Only what arrives with the last packet of the TLS handshake is not counted, which is little."""

    def __init__(
        self, meter: ReceiveBudget, options: ImageOptions, factory: SocketFactoryType, resolver: Resolver
    ) -> None:
        super().__init__(
            ssl=options.tls or _machines_trust(),
            limit=16,
            use_dns_cache=False,
            socket_factory=factory,
            resolver=resolver,
        )
        self.meter = meter

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        if connection.transport is not None:  # else it was lost already
            meter_transport(self.meter, connection.transport)
        return connection


@cache
def _machines_trust() -> ssl.SSLContext:
    """The machine's trust store, loaded once because that is slow."""
    return agree_cheaply(ssl.create_default_context())


def _client(
    options: ImageOptions, reach: Reach | None, ask_route: AskRoute, meter: ReceiveBudget, resolver: Resolver
) -> aiohttp.ClientSession:
    """A client without cookies, without transparent decompression (digests are of the bytes as sent), without the user's credentials."""
    factory = partial(_connectable, reach, ask_route) if reach is not None else _opened
    return aiohttp.ClientSession(
        connector=MeteredConnector(meter, options, factory, resolver),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"User-Agent": f"sandpool/{__version__}", "Accept-Encoding": "identity"},
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=15.0, sock_read=options.silence),
        trust_env=False,
        requote_redirect_url=False,
    )


def _connectable(reach: Reach, ask_route: AskRoute, found: AddrInfoType) -> socket.socket:
    if not may_connect(ip_address(str(found[4][0]).partition("%")[0]), reach, ask_route):
        raise OutOfReach(errno.EACCES, os.strerror(errno.EACCES))
    return _opened(found)


def _opened(found: AddrInfoType) -> socket.socket:
    made = socket.socket(*found[:3])
    if descriptors.scarce(made.fileno()):
        made.close()
        raise OSError(errno.EMFILE, descriptors.limit_message())
    return made
