"""Bytes to and from an API server: connections, timeouts, size limits, credentials. The only file that knows aiohttp.

Watches have connections of their own, so that a burst of writes never waits behind them nor they behind it. Each call
is sent once; a request that got 401 was not processed, so it is sent again if the credential could be renewed. Errors on
the way are Refused (certainly not processed), Untrusted, Unreadable or Unreachable (unknown whether it was processed).
"""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from dataclasses import dataclass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from sandpool.base.errors import SandpoolError
from sandpool.kube.answers import read_status
from sandpool.kube.config import Cluster
from sandpool.kube.credentials import Credential, Source
from sandpool.kube.errors import Refused, Unauthorized, Unreachable, Unreadable, Untrusted
from sandpool.kube.requests import JSON, HttpRequest
from sandpool.kube.tls import tls_context
from sandpool.version import __version__

LARGE = 1 << 20  # bytes; larger bodies are passed to aiohttp as a stream
SLACK = 15.0  # seconds that a watch may outlive the end that the server was asked for


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts, sizes and numbers of connections to one server."""

    request: float = 30.0  # seconds for a whole request
    write: float = 6.5  # likewise if it writes: no longer than a lease is held, so that no write outlives leadership
    connect: float = 10.0  # seconds for a place among the connections and a new one
    connections: int = 100  # for requests; watches are not counted
    body: int = 256 << 20  # bytes of an answer
    refusal: int = 1 << 20  # bytes of an answer that is not success


class Stream:
    """The body of a watch, in chunks as they arrive."""

    def __init__(self, response: aiohttp.ClientResponse, request: HttpRequest) -> None:
        self._response = response
        self._request = request

    async def chunk(self) -> bytes:
        """The next bytes; none at the end."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _failure(self._request, error) from error

    def close(self) -> None:
        """Close at once, without waiting for the server."""
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()


class Transport:
    """Sends requests to one server, with its credentials, and reads whole answers or streams."""

    def __init__(self, cluster: Cluster, source: Source, limits: Limits) -> None:
        self._cluster = cluster
        self._source = source
        self._limits = limits
        self._requests: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        self._secure = cluster.server.startswith("https:")
        self._shown: Credential | None = None  # the credential that the next two were made from
        self._tls: ssl.SSLContext | bool = True
        self._headers: dict[str, CIMultiDict[str]] = {}
        self._write_timeout = aiohttp.ClientTimeout(
            total=min(limits.write, limits.request), connect=min(limits.write, limits.connect)
        )
        self._closed = False

    async def send(self, request: HttpRequest) -> bytes:
        """The body of a successful answer; any other is raised."""
        used = await self._source.current()
        try:
            return await self._send(request, used)
        except Unauthorized:
            if not await self._source.renew(used):
                raise
        return await self._send(request, await self._source.current())

    async def open(self, request: HttpRequest, timeout: float | None) -> Stream:
        """Begin a watch."""
        used = await self._source.current()
        try:
            return await self._open(request, used, timeout)
        except Unauthorized:
            if not await self._source.renew(used):
                raise
        return await self._open(request, await self._source.current(), timeout)

    async def close(self) -> None:
        self._closed = True
        for session in (self._requests, self._watches):
            if session is not None:
                await session.close()

    async def _send(self, request: HttpRequest, credential: Credential) -> bytes:
        self._show(credential)
        if self._requests is None:
            self._requests = self._session(
                self._limits.connections,
                aiohttp.ClientTimeout(total=self._limits.request, connect=self._limits.connect),
            )
        try:
            response = await self._start(self._requests, request, self._write_timeout if request.writes else None)
            try:
                success = 200 <= response.status < 300
                body = await _body(response, self._limits.body if success else self._limits.refusal)
            except BaseException:
                response.close()
                raise
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _failure(request, error) from error
        if success:
            return body
        raise read_status(response.status, body, _retry_after(response))

    async def _open(self, request: HttpRequest, credential: Credential, timeout: float | None) -> Stream:
        self._show(credential)
        if self._watches is None:
            self._watches = self._session(0, aiohttp.ClientTimeout(total=None, connect=self._limits.connect))
        whole = aiohttp.ClientTimeout(total=timeout and timeout + SLACK, connect=self._limits.connect)
        try:
            async with asyncio.timeout(self._limits.request):
                response = await self._start(self._watches, request, whole)
                if response.status == 200:
                    return Stream(response, request)
                try:
                    body = await _body(response, self._limits.refusal)
                finally:
                    response.close()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _failure(request, error) from error
        raise read_status(response.status, body, _retry_after(response))

    async def _start(
        self, session: aiohttp.ClientSession, request: HttpRequest, timeout: aiohttp.ClientTimeout | None = None
    ) -> aiohttp.ClientResponse:
        body = request.body
        return await session.request(
            request.method,
            URL(self._cluster.server + request.target, encoded=True),
            data=body if body is None or len(body) <= LARGE else io.BytesIO(body),
            headers=self._headers.get(request.content_type) or self._make_headers(request.content_type),
            allow_redirects=False,  # never send a credential to another server
            ssl=self._tls,
            server_hostname=self._cluster.server_name or None,
            timeout=timeout or session.timeout,
            middlewares=(_send_once,) if request.method == "DELETE" else None,
        )

    def _session(self, connections: int, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, socket_factory=_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=timeout,
            read_bufsize=1 << 18,
        )

    def _show(self, credential: Credential) -> None:
        """Uses this credential from now on: headers and TLS contexts are made once per credential, and connections of another certificate are not
        reused."""
        if self._closed:
            raise Unreachable(f"{self._cluster.server}: this client is closed; nothing was sent")
        if credential is self._shown:
            return
        if self._secure and (self._shown is None or credential.certificate != self._shown.certificate):
            self._tls = tls_context(self._cluster, credential.certificate)
        self._headers = {}
        self._shown = credential

    def _make_headers(self, content_type: str) -> CIMultiDict[str]:
        assert self._shown is not None
        headers = CIMultiDict({"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": f"sandpool/{__version__}"})
        if content_type:
            headers["Content-Type"] = content_type
        headers.extend(self._shown.headers)
        self._headers[content_type] = headers
        return headers


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keeps aiohttp from sending a DELETE again when the connection breaks. The first one may have taken effect, and the second would get 404
    for an object that we deleted ourselves. aiohttp never resends POST and PATCH, and a GET may be resent."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientPayloadError(str(error)) from error


def _socket(info: aiohttp.AddrInfoType) -> socket.socket:
    """A socket with TCP keepalive: a watch may be silent for minutes."""
    family, kind, protocol, _, _ = info
    made = socket.socket(family, kind, protocol)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return made


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    length = response.content_length
    if length is not None and length <= limit and "Content-Encoding" not in response.headers:
        return await response.read()
    parts, size = [], 0
    while chunk := await response.content.readany():
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            raise Unreadable(f"{response.url.path}: the answer is larger than {limit} bytes; list in pages")
    return b"".join(parts)


def _retry_after(response: aiohttp.ClientResponse) -> int | None:
    value = response.headers.get("Retry-After", "")
    return int(value) if value.isdecimal() and len(value) < 7 else None  # a date is not worth reading


def _failure(request: HttpRequest, error: Exception) -> SandpoolError:
    """Translates an error of the HTTP library; the class says whether the request may have been processed."""
    what = f"{request.method} {request.target.partition('?')[0]}"
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)):
        if isinstance(error.os_error, ssl.SSLEOFError):
            return Refused(
                f"{what}: the server hung up during the TLS handshake; it may be starting or stopping, or have too many "
                "connections or open files: its log tells. Try again"
            )
        return Untrusted(f"{what}: the TLS handshake failed ({_reason(error)}); check certificate-authority and server")
    if isinstance(error, aiohttp.ClientConnectorError):
        return Refused(
            f"{what}: cannot connect to {error.host}:{error.port} ({_reason(error)}); is the server running?"
        )
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Refused(f"{what}: no connection within the time allowed; is the server reachable?")
    if isinstance(error, TimeoutError):
        return Unreachable(f"{what}: no answer within the time allowed; look whether it happened")
    return Unreachable(f"{what}: the connection was lost ({_reason(error)}); look whether it happened")


def _reason(error: Exception) -> str:
    cause = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
