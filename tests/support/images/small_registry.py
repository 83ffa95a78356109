"""A registry in a few lines, on loopback. It passes the same suite as Debian's docker-registry, and it can misbehave.

It keeps every request with what it carried, so that a test can tell who was shown a password.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from support.images.files import digest

USER, PASSWORD, TOKEN = "alice", "s3cret:with-colon", "the-token"
FIRST = "bytes=0-0"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Seen:
    method: str
    path: str
    authorization: str
    range: str
    query: dict[str, str]


@dataclass(slots=True)
class SmallRegistry:
    """What it holds, and how it behaves."""

    login: str = ""  # "", "basic" or "bearer"
    realm: str = ""  # of the token service; empty: its own
    redirect: str = ""  # origin that serves the blobs
    ranges: bool = True
    cut: list[int] = field(default_factory=list)  # after so many bytes a blob's answer breaks off, one for each request
    fail: list[int] = field(default_factory=list)  # statuses to answer first
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    before: Callable[[web.Request], Awaitable[None]] | None = None
    seen: list[Seen] = field(default_factory=list)
    address: str = ""  # host:port
    token_requests: int = 0

    def paths(self, method: str = "GET") -> list[str]:
        return [one.path for one in self.seen if one.method == method]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(
            Seen(
                request.method,
                request.path,
                request.headers.get("Authorization", ""),
                request.headers.get("Range", ""),
                dict(request.query),
            )
        )
        if self.before is not None:
            await self.before(request)
        if request.path == "/token":
            return self._token(request)
        if self.fail and request.method == "GET":
            return self._refusal(request, self.fail.pop(0))
        if not self._allowed(request):
            return self._refusal(request, 401)
        return await self._serve(request)

    def _refusal(self, request: web.Request, status: int) -> web.Response:
        challenge = {"WWW-Authenticate": self._challenge(request)} if status == 401 else {}
        return web.Response(status=status, headers=challenge)

    def _allowed(self, request: web.Request) -> bool:
        given = request.headers.get("Authorization", "")
        return given == {"": given, "basic": _basic(), "bearer": f"Bearer {TOKEN}"}[self.login]

    def _challenge(self, request: web.Request) -> str:
        if self.login == "basic":
            return 'Basic realm="a registry"'
        repository = request.path.removeprefix("/v2/").rpartition("/")[0].rpartition("/")[0]
        realm = self.realm or f"http://{self.address}/token"
        return f'Bearer realm="{realm}",service="small",scope="repository:{repository}:pull"'

    def _token(self, request: web.Request) -> web.Response:
        self.token_requests += 1
        if request.headers.get("Authorization", "") != _basic():
            return web.Response(status=401)
        return web.json_response({"token": TOKEN, "expires_in": 300})

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/v2/")
        if found := re.fullmatch(r"(.+)/manifests/([^/]+)", path):
            return await self._manifest(request, found[1], found[2])
        if found := re.fullmatch(r"(.+)/blobs/uploads/", path):
            return web.Response(status=202, headers={"Location": f"/v2/{found[1]}/blobs/uploads/1?state=x"})
        if re.fullmatch(r"(.+)/blobs/uploads/1", path) and request.method == "PUT":
            content = await request.read()
            if digest(content) != request.query["digest"]:
                return web.Response(status=400)
            self.blobs[digest(content)] = content
            return web.Response(status=201)
        if found := re.fullmatch(r"(.+)/blobs/([^/]+)", path):
            return await self._blob(request, found[2])
        return web.json_response({}) if path == "" else web.Response(status=404)

    async def _manifest(self, request: web.Request, repository: str, wanted: str) -> web.Response:
        if request.method == "PUT":
            content = await request.read()
            kept = (request.headers["Content-Type"], content)
            self.manifests[repository, wanted] = self.manifests[repository, digest(content)] = kept
            return web.Response(status=201)
        if (repository, wanted) not in self.manifests:
            return web.Response(status=404)
        kind, content = self.manifests[repository, wanted]
        return web.Response(body=content, content_type=kind)

    async def _blob(self, request: web.Request, wanted: str) -> web.StreamResponse:
        if wanted not in self.blobs:
            return web.Response(status=404)
        if self.redirect:
            return web.Response(status=307, headers={"Location": f"{self.redirect}{request.path}"})
        content, start = self.blobs[wanted], 0
        if self.ranges and request.headers.get("Range", "") == FIRST:
            return web.Response(status=206, body=content[:1], headers={"Content-Range": f"bytes 0-0/{len(content)}"})
        if self.ranges and (asked := re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))):
            start = int(asked[1])
        headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        response = web.StreamResponse(status=206 if start else 200, headers=headers)
        response.content_length = len(content) - start
        await response.prepare(request)
        most = self.cut.pop(0) if self.cut else len(content)
        await response.write(content[start : start + most])
        if start + most < len(content):
            assert request.transport is not None
            request.transport.close()  # in the middle of what it promised
        return response


def _basic() -> str:
    return "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@asynccontextmanager
async def small_registry(
    host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, **behaviour: object
) -> AsyncIterator[SmallRegistry]:
    registry = SmallRegistry(**behaviour)  # type: ignore[arg-type]
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", registry.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        registry.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        yield registry
    finally:
        await runner.cleanup()
