"""Requests for one sandbox, through the router: the headers that say which one, the credential, and what refusals mean.

Success comes back; every other answer is raised, redirects too. What the router refuses has a class of its own (SandboxGone,
SandboxNotFound, Suspended, NotReady, Denied); what the daemon inside refuses is a RouterError with its status and code. Paths are
those of wire/paths.py, encoded.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from sandpool.kube.errors import Unreadable
from sandpool.sdk._async.exchange import Body
from sandpool.sdk._async.http import Answer, Headers, Http, RefusedUpgrade, Response
from sandpool.sdk._async.line import Line
from sandpool.sdk._async.websocket import WebSocket
from sandpool.sdk.errors import Released, SandboxError
from sandpool.sdk.fates import UNHEARD, Ran
from sandpool.sdk.refusals import refusal
from sandpool.wire.headers import NAMESPACE, PORT, SANDBOX, UID

ANSWER = 8 << 20
"""Bytes of an answer about one thing: a file, a process with its arguments."""


class Way(Protocol):
    """How the router is reached, and as whom."""

    async def router(self) -> Http: ...

    async def bearer(self) -> Headers:
        """What proves who asks."""
        ...

    async def renew(self, used: Headers) -> bool:
        """The router refused it: whether there is another one now."""
        ...


class Explaining(Protocol):
    """Whoever can find out more about an error: what has become of the sandbox."""

    async def explained(self, error: SandboxError, ran: Ran) -> SandboxError: ...


class DataPlane:
    def __init__(self, way: Way, namespace: str, sandbox: str, uid: str = "") -> None:
        self.namespace = namespace
        self.sandbox = sandbox
        self.uid = uid
        self._way = way
        self._shut = ""
        self._fate: Explaining | None = None

    def ask(self, fate: Explaining) -> None:
        """When something fails, from now on."""
        self._fate = fate

    def shut(self, why: str) -> None:
        """From now on every request is refused with Released."""
        self._shut = why

    async def _reached(self) -> tuple[Http, Headers]:
        if self._shut:
            raise Released(self._shut)
        return await self._way.router(), await self._way.bearer()

    async def explained(self, error: SandboxError, ran: Ran = UNHEARD) -> SandboxError:
        """The error that says what has happened to the sandbox, if that is why; `ran` is what it is about."""
        if self._fate is None or self._shut:
            return error
        return await self._fate.explained(error, ran)

    async def _refused(self, status: int, body: bytes) -> SandboxError:
        return await self.explained(refusal(status, body, str(self)))

    def __str__(self) -> str:
        return f"sandbox {self.namespace}/{self.sandbox}"

    def headers(self, port: int | None = None) -> Headers:
        """Which sandbox is meant."""
        found = [(SANDBOX, self.sandbox), (NAMESPACE, self.namespace)]
        if self.uid:
            found.append((UID, self.uid))
        if port is not None:
            found.append((PORT, str(port)))
        return tuple(found)

    async def request(
        self,
        method: str,
        path: str,
        headers: Headers = (),
        body: bytes = b"",
        timeout: float | None = None,
        limit: int = ANSWER,
    ) -> Response:
        """One request whose answer fits into memory. It is the sandbox that answers: TooLarge if it says more than `limit` bytes."""
        http, proof = await self._reached()
        response = await http.request(method, path, (*self.headers(), *proof, *headers), body, timeout, limit)
        if response.status == 401 and await self._way.renew(proof):
            proof = await self._way.bearer()
            response = await http.request(method, path, (*self.headers(), *proof, *headers), body, timeout, limit)
        if not response.ok:
            raise await self._refused(response.status, response.body)
        return response

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, headers: Headers = (), body: Body = b"", timeout: float | None = None
    ) -> AsyncIterator[Answer]:
        """One request with bodies of any size; see Http.stream."""
        http, proof = await self._reached()
        async with AsyncExitStack() as stack:
            opened = http.stream(method, path, (*self.headers(), *proof, *headers), body, timeout)
            answer = await stack.enter_async_context(opened)
            if answer.status == 401 and isinstance(body, bytes) and await self._way.renew(proof):
                await stack.aclose()
                proof = await self._way.bearer()
                opened = http.stream(method, path, (*self.headers(), *proof, *headers), body, timeout)
                answer = await stack.enter_async_context(opened)
            if not answer.ok:
                raise await self._refused(answer.status, await answer.beginning())
            yield answer

    @asynccontextmanager
    async def websocket(
        self, path: str, headers: Headers = (), timeout: float | None = None
    ) -> AsyncIterator[WebSocket]:
        http, proof = await self._reached()
        try:
            async with http.websocket(path, (*self.headers(), *proof, *headers), timeout) as socket:
                yield socket
        except RefusedUpgrade as refused:
            raise await self._refused(refused.response.status, refused.response.body) from None

    @asynccontextmanager
    async def upgrade(
        self, path: str, protocol: str, headers: Headers = (), timeout: float | None = None
    ) -> AsyncIterator[tuple[Line, bytes]]:
        """A connection that became a plain byte stream, and what came with the answer already."""
        http, proof = await self._reached()
        try:
            async with http.upgrade(path, protocol, (*self.headers(), *proof, *headers), timeout) as (line, first):
                yield line, first
        except RefusedUpgrade as refused:
            raise await self._refused(refused.response.status, refused.response.body) from None

    async def port_url(self, path: str, wish: Mapping[str, object]) -> str:
        """The address of a port, which the router signs."""
        http, proof = await self._reached()
        body = json.dumps(wish).encode()
        response = await http.request("POST", path, (*proof, ("Content-Type", "application/json")), body, 30.0)
        if response.status >= 400:
            raise await self._refused(response.status, response.body)
        answer = response.json()
        if not isinstance(answer, dict) or not isinstance(answer.get("url"), str):
            raise Unreadable(f"{self}: the router gave no address for the port; upgrade it")
        return str(answer["url"])
