"""HTTP clients for pulls, each of which connects only to addresses that its reach allows.

The address is judged where the socket is made, after the name was looked up: a name that means something else a moment later gains
nothing. A client is never used for another reach, so no open connection is either. Through a proxy it is the proxy that looks names up
and connects; the proxy itself is the operator's and is not judged. Nor do pulls get the last open files of this process, or more than
a meter allows (meter.py).
"""

from __future__ import annotations

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
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from sandpool.base import open_files as descriptors
from sandpool.base.shares import OPERATOR
from sandpool.kube.tls import agree_cheaply
from sandpool.node.images.allowed import Reach, may_connect
from sandpool.node.images.meter import Meter, measure
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.pace import Place
from sandpool.node.images.resolving import Resolver
from sandpool.node.network.egress.lookups import Lookups, Places
from sandpool.node.network.egress.outside import resolve
from sandpool.node.network.forbidden import Address
from sandpool.node.network.route import Route, route
from sandpool.version import __version__

AskRoute = Callable[[Address], Route]
TakePlace = Callable[[], AbstractAsyncContextManager[Place]]


class OutOfReach(PermissionError):
    """An address that must not be connected to."""


class Lines:
    """Of one pull. `large`: places for documents that take much memory, which tenants share; `got` hears of all content that comes;
    `lookups` looks names up."""

    def __init__(
        self,
        options: ImageOptions,
        large: TakePlace,
        got: Callable[[int], object] = lambda size: None,
        *,
        ask_route: AskRoute = route,
        lookups: Lookups | None = None,
    ) -> None:
        self._resolver = Resolver(lookups or Lookups(Places(resolve, 1), 1, options.patience, OPERATOR))
        self.meter = Meter()
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

    async def __aenter__(self) -> Lines:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.close()
        await self._resolver.close()


class MeteredConnector(aiohttp.TCPConnector):
    """Hands out connections that are metered. What may come before that, with the last packet of a TLS handshake, is little."""

    def __init__(self, meter: Meter, options: ImageOptions, factory: SocketFactoryType, resolver: Resolver) -> None:
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
            measure(self.meter, connection.transport)
        return connection


@cache
def _machines_trust() -> ssl.SSLContext:
    """Read once: there are many authorities."""
    return agree_cheaply(ssl.create_default_context())


def _client(
    options: ImageOptions, reach: Reach | None, ask_route: AskRoute, meter: Meter, resolver: Resolver
) -> aiohttp.ClientSession:
    """No cookies, no decompression behind our back (it would change what the digest is of), no credentials of the user."""
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
        raise OSError(errno.EMFILE, descriptors.told())
    return made
