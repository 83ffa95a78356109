"""A small HTTP server for what operators and probes read: one page per path, GET only, one request per connection.

There is no access control: what is served here holds no secrets and no object's content. Sizes, times and the number of
connections, TLS handshakes included, are bounded, so that no client can hold the process up.

`history_pages` is the page GET /stories?namespace=N&controller=C&name=X: the reconcile history of one object. It may be about any namespace, so it is
served on loopback, which only those reach who may open a port into the pod (`kubectl port-forward`). A replica that does not lead has no history.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

import msgspec

from sandpool.base.errors import SandpoolError
from sandpool.base.tls_listener import TlsListener
from sandpool.model.metadata import Key
from sandpool.telemetry.reconcile_history import ReconcileHistory

TEXT = "text/plain; charset=utf-8"
HEAD = 8192
"""Bytes of a request line and its headers."""


@dataclass(frozen=True, slots=True)
class Page:
    """One HTTP answer."""

    body: bytes
    status: int = 200
    content_type: str = TEXT


Handler = Callable[[Mapping[str, str]], Awaitable[Page]]
"""Takes the query, returns the page."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where pages are served."""

    host: str  # empty: every interface
    port: int  # 0: a free one

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on connections and requests."""

    arrival: float = 10.0  # seconds for a request to arrive
    departure: float = 30.0  # seconds for an answer to be taken
    connections: int = 64


class CannotListen(SandpoolError):
    """The address is taken or not ours."""


class Pages:
    """The server of debug pages."""

    def __init__(self, pages: Mapping[str, Handler], bounds: Bounds = Bounds()) -> None:
        self._pages = pages
        self._bounds = bounds
        self._open: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, address: Address, flag: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Address]:
        """Serves while the body runs; yields the address. `flag` is the command-line flag of the address, for error messages."""
        opened = self._plain(address) if tls is None else self._secure(address, tls)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._end)
            try:
                port = await stack.enter_async_context(opened)
            except OSError as error:
                raise CannotListen(
                    f"cannot listen on {address}: {error.strerror or error}. Choose another address with {flag}, or 0 for none"
                ) from error
            yield Address(address.host, port)

    @asynccontextmanager
    async def _plain(self, address: Address) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._accept, address.host or None, address.port, limit=HEAD)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    @asynccontextmanager
    async def _secure(self, address: Address, tls: ssl.SSLContext) -> AsyncIterator[int]:
        listener = _bound(address)
        server = TlsListener(
            listener,
            tls,
            self._enter,
            handshakes=self._bounds.connections,
            handshake_timeout=self._bounds.arrival,
            expected=lambda error: isinstance(error, MemoryError),
        )
        server.open()
        try:
            yield listener.getsockname()[1]
        finally:
            server.close()
            await server.closed()

    def _enter(self) -> asyncio.Protocol:
        """The protocol for a client that has completed its TLS handshake."""
        loop = asyncio.get_running_loop()
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(HEAD, loop), self._accept, loop)

    async def _end(self) -> None:
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= self._bounds.connections:
            writer.close()
            return
        self._open.add(task)
        try:
            await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is gone, too slow, or sent too much
        finally:
            self._open.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._bounds.arrival):
            head = await reader.readuntil(b"\r\n\r\n")
        method, page = await self._answer(head)
        phrase = HTTPStatus(page.status).phrase
        lines = (
            f"HTTP/1.1 {page.status} {phrase}",
            f"Content-Type: {page.content_type}",
            f"Content-Length: {len(page.body)}",
            "Connection: close",
            "\r\n",
        )
        async with asyncio.timeout(self._bounds.departure):
            writer.write("\r\n".join(lines).encode() + (b"" if method == "HEAD" else page.body))
            await writer.drain()

    async def _answer(self, head: bytes) -> tuple[str, Page]:
        words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "", Page(b"this is no HTTP/1 request\n", 400)
        method, target = words[0], urlsplit(words[1])
        handler = self._pages.get(target.path)
        if handler is None:
            known = "\n".join(sorted(self._pages))
            return method, Page(f"there is no {target.path} here, but:\n{known}\n".encode(), 404)
        if method not in ("GET", "HEAD"):
            return method, Page(f"{method} is not answered here; use GET\n".encode(), 405)
        return method, await handler(dict(parse_qsl(target.query, keep_blank_values=True)))


def parse_address(text: str, *, host: str = "") -> Address | None:
    """`:8080`, `127.0.0.1:8080`, `[::1]:8080`, or a bare port; None for `0`, which means disabled. `host` is the
    default host. ValueError for anything else."""
    if text == "0":
        return None
    named, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or (":" in named and not named.startswith("[")):
        raise ValueError(f"{text!r} is not an address")
    return Address(named.strip("[]") or host, int(port))


def _bound(address: Address) -> socket.socket:
    """A socket at the address; without a host, on every interface, by IPv6 too where the machine has it. Raises OSError."""
    if address.host:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listener = socket.create_server((address.host, address.port), family=family)
    else:
        try:
            listener = socket.create_server(("", address.port), family=socket.AF_INET6, dualstack_ipv6=True)
        except (ValueError, OSError):
            listener = socket.create_server(("", address.port))
    listener.setblocking(False)
    return listener


HISTORY_PATH = "/stories"
QUERY = ("namespace", "controller", "name")
CONTROLLERS = ("claim", "sandbox", "pool", "template")


def history_pages(history: ReconcileHistory) -> dict[str, Handler]:
    async def page(query: Mapping[str, str]) -> Page:
        asked = {name: query.get(name, "") for name in QUERY}
        if not all(asked.values()) or asked["controller"] not in CONTROLLERS:
            words = f"write {HISTORY_PATH}?namespace=N&controller=C&name=X with one of the controllers {', '.join(CONTROLLERS)}\n"
            return Page(words.encode(), 400)
        entries = history.of((asked["controller"], Key(asked["namespace"], asked["name"])))
        body = msgspec.json.encode({**asked, "entries": [entry.shown() for entry in entries]})
        return Page(body, content_type="application/json")

    return {HISTORY_PATH: page}
