"""Requests for one sandbox, through the router: the headers that say which one, the credential, and what refusals mean.

A successful answer is returned; every other one is raised, redirects too. Refusals of the router have classes of their own (SandboxGone,
SandboxNotFound, Suspended, NotReady, Denied); a refusal of the daemon inside is a RouterError with its status and code. Paths are
those of wire/paths.py, encoded.

Every answer of the daemon carries its incarnation, which is new each time the daemon starts. Requests name the incarnation of the first
answer: a daemon that was restarted since then refuses them without doing anything, and SandboxRestarted is raised once.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from sandpool.kube.errors import Unreachable, Unreadable
from sandpool.sdk._async.exchange import Body, ByteStream
from sandpool.sdk._async.http import Answer, Headers, Http, RefusedUpgrade, Response
from sandpool.sdk._async.websocket import WebSocket
from sandpool.sdk.answers import refusal
from sandpool.sdk.errors import (
    ProcessNotFound,
    Released,
    RouterError,
    SandboxError,
    SandboxReplaced,
    SandboxRestarted,
)
from sandpool.sdk.interruptions import UNKNOWN_RUN, LostRun
from sandpool.wire.codes import Code
from sandpool.wire.headers import INCARNATION, NAMESPACE, SANDBOX, UID
from sandpool.wire.incarnation import sendable, started

ANSWER = 8 << 20
"""Bytes of an answer about one thing: a file, a process with its arguments."""
_INCARNATION = INCARNATION.lower()


class Way(Protocol):
    """How to reach the router, and with which credential."""

    async def router(self) -> Http: ...

    async def bearer(self) -> Headers:
        """The headers with the credential."""
        ...

    async def renew(self, used: Headers) -> bool:
        """The router refused the credential: whether there is another one now."""
        ...


class Explaining(Protocol):
    """Finds out more about an error: what happened to the sandbox."""

    async def explain(self, error: SandboxError, ran: LostRun) -> SandboxError: ...


class DataPlane:
    def __init__(self, way: Way, namespace: str, sandbox: str, uid: str = "") -> None:
        self.namespace = namespace
        self.sandbox = sandbox
        self.uid = uid
        self._way = way
        self._shut = ""
        self._diagnosis: Explaining | None = None
        self._incarnation = ""  # of the daemon that requests are for; empty: any

    def ask(self, diagnosis: Explaining) -> None:
        """Has failures explained from now on."""
        self._diagnosis = diagnosis

    def shut(self, why: str) -> None:
        """From now on every request raises Released."""
        self._shut = why

    async def _reached(self) -> tuple[Http, Headers]:
        if self._shut:
            raise Released(self._shut)
        return await self._way.router(), await self._way.bearer()

    async def explain(self, error: SandboxError, ran: LostRun = UNKNOWN_RUN) -> SandboxError:
        """The error that says what happened to the sandbox, if that is the cause; `ran` is the command or process it is about."""
        if self._diagnosis is None or self._shut:
            return error
        meant = self._incarnation
        found = await self._diagnosis.explain(error, ran)
        # A process that the daemon does not know: the request already named its incarnation.
        if isinstance(found, SandboxRestarted | SandboxReplaced) and not isinstance(error, ProcessNotFound):
            self.forget(meant)
        return found

    @property
    def since(self) -> float:
        """When the daemon that requests are for was started, in seconds since 1970, by the sandbox's clock."""
        return started(self._incarnation)

    def forget(self, incarnation: str | None = None) -> None:
        """The caller knows of the restart, or caused it: the next answer says which daemon requests are for from then on. With an
        `incarnation`, only if requests are still for that one."""
        if incarnation in (None, self._incarnation):
            self._incarnation = ""

    async def answered_by_the_same(self, path: str, timeout: float) -> bool | None:
        """Whether the daemon that requests are for answers and knows what is at the path. None: no answer."""
        http, proof = await self._reached()
        try:
            response = await http.request("GET", path, (*self.headers(), *proof), b"", timeout, ANSWER)
        except Unreachable:
            return None
        if response.ok:
            return True
        error = refusal(response.status, response.body, str(self))
        return False if isinstance(error, RouterError) and error.status in (404, Code.RESTARTED.status) else None

    def _heard(self, headers: Mapping[str, str]) -> None:
        if not self._incarnation and sendable(said := headers.get(_INCARNATION, "")):
            self._incarnation = said

    async def _refused(self, status: int, headers: Mapping[str, str], body: bytes, meant: str) -> SandboxError:
        """`meant` is the incarnation that the request named."""
        error = refusal(status, body, str(self))
        if not (meant and isinstance(error, RouterError) and error.code == Code.RESTARTED.word):
            self._heard(headers)
            return await self.explain(error)
        self.forget(meant)
        self._heard(headers)
        restarted = SandboxRestarted(
            f"{self} was restarted since the last call, and this call did nothing; prepare the sandbox again and retry"
        )
        if self._diagnosis is None or self._shut:
            return restarted
        return await self._diagnosis.explain(restarted, LostRun("", started(meant)))

    def __str__(self) -> str:
        return f"sandbox {self.namespace}/{self.sandbox}"

    def headers(self) -> Headers:
        """Headers: which sandbox, and which incarnation of its daemon."""
        found = [(SANDBOX, self.sandbox), (NAMESPACE, self.namespace)]
        if self.uid:
            found.append((UID, self.uid))
        if self._incarnation:
            found.append((INCARNATION, self._incarnation))
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
        """One request whose answer is read into memory. The sandbox may answer anything: TooLarge if it is more than `limit` bytes."""
        http, proof = await self._reached()
        meant, named = self._incarnation, self.headers()
        response = await http.request(method, path, (*named, *proof, *headers), body, timeout, limit)
        if response.status == 401 and await self._way.renew(proof):
            proof = await self._way.bearer()
            response = await http.request(method, path, (*named, *proof, *headers), body, timeout, limit)
        if not response.ok:
            raise await self._refused(response.status, response.headers, response.body, meant)
        self._heard(response.headers)
        return response

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, headers: Headers = (), body: Body = b"", timeout: float | None = None
    ) -> AsyncIterator[Answer]:
        """One request with bodies of any size; see Http.stream."""
        http, proof = await self._reached()
        meant, named = self._incarnation, self.headers()
        async with AsyncExitStack() as stack:
            opened = http.stream(method, path, (*named, *proof, *headers), body, timeout)
            answer = await stack.enter_async_context(opened)
            if answer.status == 401 and isinstance(body, bytes) and await self._way.renew(proof):
                await stack.aclose()
                proof = await self._way.bearer()
                opened = http.stream(method, path, (*named, *proof, *headers), body, timeout)
                answer = await stack.enter_async_context(opened)
            if not answer.ok:
                raise await self._refused(answer.status, answer.headers, await answer.beginning(), meant)
            self._heard(answer.headers)
            yield answer

    @asynccontextmanager
    async def websocket(
        self, path: str, headers: Headers = (), timeout: float | None = None
    ) -> AsyncIterator[WebSocket]:
        http, proof = await self._reached()
        meant, named = self._incarnation, self.headers()
        try:
            async with http.websocket(path, (*named, *proof, *headers), timeout) as socket:
                self._heard(socket.headers)
                yield socket
        except RefusedUpgrade as refused:
            said = refused.response
            raise await self._refused(said.status, said.headers, said.body, meant) from None

    @asynccontextmanager
    async def upgrade(
        self, path: str, protocol: str, headers: Headers = (), timeout: float | None = None
    ) -> AsyncIterator[tuple[ByteStream, bytes]]:
        """A connection that became a plain byte stream, and the bytes that came right behind the answer."""
        http, proof = await self._reached()
        meant, named = self._incarnation, self.headers()
        try:
            async with http.upgrade(path, protocol, (*named, *proof, *headers), timeout) as (line, first):
                yield line, first
        except RefusedUpgrade as refused:
            said = refused.response
            raise await self._refused(said.status, said.headers, said.body, meant) from None

    async def port_url(self, path: str, wish: Mapping[str, object]) -> str:
        """The address of a port, which the router signs."""
        http, proof = await self._reached()
        body = json.dumps(wish).encode()
        response = await http.request("POST", path, (*proof, ("Content-Type", "application/json")), body, 30.0)
        if response.status >= 400:
            raise await self.explain(refusal(response.status, response.body, str(self)))
        answer = response.json()
        if not isinstance(answer, dict) or not isinstance(answer.get("url"), str):
            raise Unreadable(f"{self}: the router gave no address for the port; upgrade it")
        return str(answer["url"])
