"""A real HTTP server on a loopback socket that plays a script. It knows nothing about Kubernetes: each request takes the
next act, and what was asked is kept. For tests of what a client does when the other side misbehaves."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Act = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    connection: int  # the same number: the same connection

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Peer:
    url: str = ""
    acts: list[Act] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    _connections: list[asyncio.Transport] = field(default_factory=list)
    _arrival: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def asked(self, times: int) -> None:
        """Wait until so many requests have come."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: len(self.seen) >= times)

    def disconnected(self, connection: int) -> bool:
        """Has the other side closed this connection?"""
        return self._connections[connection].is_closing()

    async def play(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        assert request.transport is not None
        if request.transport not in self._connections:
            self._connections.append(request.transport)
        number = self._connections.index(request.transport)
        self.seen.append(Seen(request.method, request.path, dict(request.query), request.headers.copy(), body, number))
        async with self._arrival:
            self._arrival.notify_all()
        if not self.acts:
            return web.json_response({"message": "the script is over"}, status=418)
        act = self.acts.pop(0) if len(self.acts) > 1 or not getattr(self.acts[0], "forever", False) else self.acts[0]
        return await act(request)


def answer(body: Any = None, status: int = 200, headers: Mapping[str, str] | None = None) -> Act:
    """One whole answer. Bytes go as they are, everything else as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def act(_: web.Request) -> web.StreamResponse:
        return web.Response(body=raw, status=status, headers=headers, content_type="application/json")

    return act


def forever(act: Act) -> Act:
    """The last act of a script, played for every further request."""

    async def again(request: web.Request) -> web.StreamResponse:
        return await act(request)

    again.forever = True  # type: ignore[attr-defined]
    return again


def drop() -> Act:
    """Take the request and break the connection: the request may have been processed."""

    async def act(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    return act


def cut(body: bytes, promised: int) -> Act:
    """Promise so many bytes, send fewer, break the connection."""

    async def act(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(promised)})
        await response.prepare(request)
        await response.write(body)
        assert request.transport is not None
        request.transport.close()
        return response

    return act


def stream(*chunks: bytes, hold: asyncio.Event | None = None, broken: bool = False) -> Act:
    """Send chunks one by one, then wait for `hold`, then end well or break the connection."""

    async def act(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if hold is not None:
            await hold.wait()
        if broken:
            assert request.transport is not None
            request.transport.abort()
        else:
            await response.write_eof()
        return response

    return act


def hang(until: asyncio.Event, body: Any = None) -> Act:
    """Say nothing at all until told."""

    async def act(_: web.Request) -> web.StreamResponse:
        await until.wait()
        return web.json_response(body)

    return act


@asynccontextmanager
async def scripted_peer(*acts: Act, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[Peer]:
    peer = Peer(acts=list(acts))
    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{path:.*}", peer.play)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
        await site.start()
        (address,) = runner.addresses
        peer.url = f"{'https' if tls else 'http'}://127.0.0.1:{address[1]}"
        yield peer
    finally:
        await runner.cleanup()
