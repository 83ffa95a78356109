"""Bytes to and from an API server: connections, timeouts, size limits, credentials. The only file that knows aiohttp.

Watches have connections of their own, so that a burst of writes never waits behind them nor they behind it. Each call
is sent once; a 401 was surely not processed, so it is sent a second time if the credential could be renewed. Whatever
goes wrong on the way is Refused (surely not processed), Untrusted, Unreadable or Unreachable (nobody knows).
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
from sandpool.kube.calls import JSON, Call
from sandpool.kube.config import Cluster
from sandpool.kube.credentials import Credential, Source
from sandpool.kube.errors import Refused, Unauthorized, Unreachable, Unreadable, Untrusted
from sandpool.kube.tls import tls_context
from sandpool.version import __version__

LARGE = 1 << 20  # bytes; aiohttp wants larger bodies as a stream
SLACK = 15.0  # seconds that a watch may outlive the end that the server was asked for


@dataclass(frozen=True, slots=True)
class Limits:
    request: float = 30.0  # seconds for a whole request
    write: float = 6.5  # likewise if it writes: no longer than a lease is held, so that no write outlives leadership
    connect: float = 10.0  # seconds for a place among the connections and a new one
    connections: int = 100  # for requests; watches are not counted
    body: int = 256 << 20  # bytes of an answer
    refusal: int = 1 << 20  # bytes of an answer that is not success


class Stream:
    """The body of a watch as it comes."""

    def __init__(self, response: aiohttp.ClientResponse, call: Call) -> None:
        self._response = response
        self._call = call

    async def chunk(self) -> bytes:
        """The next bytes; none at the end."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _failure(self._call, error) from error

    def close(self) -> None:
        """At once: nothing more is wanted, so nobody waits for the server to say goodbye."""
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()


class Transport:
    def __init__(self, cluster: Cluster, source: Source, limits: Limits) -> None:
        self._cluster = cluster
        self._source = source
        self._limits = limits
        self._requests: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        self._secure = cluster.server.startswith("https:")
        self._shown: Credential | None = None  # what the two below were made from
        self._tls: ssl.SSLContext | bool = True
        self._headers: dict[str, CIMultiDict[str]] = {}
        self._write_timeout = aiohttp.ClientTimeout(
            total=min(limits.write, limits.request), connect=min(limits.write, limits.connect)
        )
        self._closed = False

    async def send(self, call: Call) -> bytes:
        """The body of a successful answer; any other is raised."""
        used = await self._source.current()
        try:
            return await self._send(call, used)
        except Unauthorized:
            if not await self._source.renew(used):
                raise
        return await self._send(call, await self._source.current())

    async def open(self, call: Call, timeout: float | None) -> Stream:
        """Begin a watch."""
        used = await self._source.current()
        try:
            return await self._open(call, used, timeout)
        except Unauthorized:
            if not await self._source.renew(used):
                raise
        return await self._open(call, await self._source.current(), timeout)

    async def close(self) -> None:
        self._closed = True
        for session in (self._requests, self._watches):
            if session is not None:
                await session.close()

    async def _send(self, call: Call, credential: Credential) -> bytes:
        self._show(credential)
        if self._requests is None:
            self._requests = self._session(
                self._limits.connections,
                aiohttp.ClientTimeout(total=self._limits.request, connect=self._limits.connect),
            )
        try:
            response = await self._start(self._requests, call, self._write_timeout if call.writes else None)
            try:
                success = 200 <= response.status < 300
                body = await _body(response, self._limits.body if success else self._limits.refusal)
            except BaseException:
                response.close()
                raise
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _failure(call, error) from error
        if success:
            return body
        raise read_status(response.status, body, _retry_after(response))

    async def _open(self, call: Call, credential: Credential, timeout: float | None) -> Stream:
        self._show(credential)
        if self._watches is None:
            self._watches = self._session(0, aiohttp.ClientTimeout(total=None, connect=self._limits.connect))
        whole = aiohttp.ClientTimeout(total=timeout and timeout + SLACK, connect=self._limits.connect)
        try:
            async with asyncio.timeout(self._limits.request):
                response = await self._start(self._watches, call, whole)
                if response.status == 200:
                    return Stream(response, call)
                try:
                    body = await _body(response, self._limits.refusal)
                finally:
                    response.close()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _failure(call, error) from error
        raise read_status(response.status, body, _retry_after(response))

    async def _start(
        self, session: aiohttp.ClientSession, call: Call, timeout: aiohttp.ClientTimeout | None = None
    ) -> aiohttp.ClientResponse:
        body = call.body
        return await session.request(
            call.method,
            URL(self._cluster.server + call.target, encoded=True),
            data=body if body is None or len(body) <= LARGE else io.BytesIO(body),
            headers=self._headers.get(call.content_type) or self._make_headers(call.content_type),
            allow_redirects=False,  # a credential goes to the server that it is for
            ssl=self._tls,
            server_hostname=self._cluster.server_name or None,
            timeout=timeout or session.timeout,
            middlewares=(_send_once,) if call.method == "DELETE" else None,
        )

    def _session(self, connections: int, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, socket_factory=_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=timeout,
            read_bufsize=1 << 18,
        )

    def _show(self, credential: Credential) -> None:
        """Headers and TLS are made once per credential; connections of another certificate are not used again."""
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
    """aiohttp sends a DELETE again when the connection breaks. The first may have happened: then the second says 404
    for an object that we deleted ourselves. POST and PATCH it never sends again, and a GET may be."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientPayloadError(str(error)) from error


def _socket(info: aiohttp.AddrInfoType) -> socket.socket:
    """A watch may be silent for minutes: the kernel asks whether the other side still lives."""
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


def _failure(call: Call, error: Exception) -> SandpoolError:
    """What an error of the HTTP library means to somebody who must know whether the request was processed."""
    what = f"{call.method} {call.target.partition('?')[0]}"
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
