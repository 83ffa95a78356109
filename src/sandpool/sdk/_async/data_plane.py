"""Requests for one sandbox, through the router: the headers that say which one, the credential, and what refusals mean.

Success comes back; every other answer is raised, redirects too. What the router refuses has a class of its own (SandboxGone,
SandboxNotFound, Suspended, NotReady, Denied); what the daemon inside refuses is a RouterError with its status and code. Paths are
those of wire/paths.py, encoded.

The daemon says with every answer which run of it answers. The first one that is heard of is meant from then on: any other one refuses,
without having done anything, and SandboxRestarted says so, once.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from sandpool.kube.errors import Unreachable, Unreadable
from sandpool.sdk._async.exchange import Body
from sandpool.sdk._async.http import Answer, Headers, Http, RefusedUpgrade, Response
from sandpool.sdk._async.line import Line
from sandpool.sdk._async.websocket import WebSocket
from sandpool.sdk.errors import (
    ProcessNotFound,
    Released,
    RouterError,
    SandboxError,
    SandboxReplaced,
    SandboxRestarted,
)
from sandpool.sdk.fates import UNHEARD, Ran
from sandpool.sdk.refusals import refusal
from sandpool.wire.codes import Code
from sandpool.wire.headers import INCARNATION, NAMESPACE, SANDBOX, UID
from sandpool.wire.incarnation import sendable, started

ANSWER = 8 << 20
"""Bytes of an answer about one thing: a file, a process with its arguments."""
_INCARNATION = INCARNATION.lower()


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
        self._incarnation = ""  # of the daemon that is meant; empty: whichever there is

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
        meant = self._incarnation
        found = await self._fate.explained(error, ran)
        # A process that the daemon does not know was asked for of the one that is meant already.
        if isinstance(found, SandboxRestarted | SandboxReplaced) and not isinstance(error, ProcessNotFound):
            self.forget(meant)
        return found

    @property
    def since(self) -> float:
        """When the daemon that is meant began, in seconds since 1970, by the sandbox's clock."""
        return started(self._incarnation)

    def forget(self, incarnation: str | None = None) -> None:
        """Whoever asks knows that the sandbox was started again, or has done it: the next answer says which daemon is meant from then
        on. With an `incarnation`, only if that one still is."""
        if incarnation in (None, self._incarnation):
            self._incarnation = ""

    async def answered_by_the_same(self, path: str, timeout: float) -> bool | None:
        """Whether the daemon that is meant is there and knows what is at the path. None: nobody says."""
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
        """`meant` is which daemon was asked for."""
        error = refusal(status, body, str(self))
        if not (meant and isinstance(error, RouterError) and error.code == Code.RESTARTED.word):
            self._heard(headers)
            return await self.explained(error)
        self.forget(meant)
        self._heard(headers)
        restarted = SandboxRestarted(
            f"{self} was started again since the last call, and nothing of this one was done; prepare it again and go on"
        )
        if self._fate is None or self._shut:
            return restarted
        return await self._fate.explained(restarted, Ran("", started(meant)))

    def __str__(self) -> str:
        return f"sandbox {self.namespace}/{self.sandbox}"

    def headers(self) -> Headers:
        """Which sandbox is meant, and which run of its daemon."""
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
        """One request whose answer fits into memory. It is the sandbox that answers: TooLarge if it says more than `limit` bytes."""
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
    ) -> AsyncIterator[tuple[Line, bytes]]:
        """A connection that became a plain byte stream, and what came with the answer already."""
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
            raise await self.explained(refusal(response.status, response.body, str(self)))
        answer = response.json()
        if not isinstance(answer, dict) or not isinstance(answer.get("url"), str):
            raise Unreadable(f"{self}: the router gave no address for the port; upgrade it")
        return str(answer["url"])
