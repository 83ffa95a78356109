# generated from sdk/_async/data_plane.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""Requests for one sandbox, through the router: the headers that say which one, the credential, and what refusals mean.

Success comes back; every other answer is raised, redirects too. What the router refuses has a class of its own (SandboxGone,
SandboxNotFound, Suspended, NotReady, Denied); what the daemon inside refuses is a RouterError with its status and code. Paths are
those of wire/paths.py, encoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Protocol

from sandpool.kube.errors import Unreadable
from sandpool.sdk._sync.exchange import Body
from sandpool.sdk._sync.http import Answer, Headers, Http, RefusedUpgrade, Response
from sandpool.sdk._sync.line import Line
from sandpool.sdk._sync.websocket import WebSocket
from sandpool.sdk.errors import Released, SandboxError
from sandpool.sdk.fates import UNHEARD, Ran
from sandpool.sdk.refusals import refusal
from sandpool.wire.headers import NAMESPACE, PORT, SANDBOX, UID

ANSWER = 8 << 20
"""Bytes of an answer about one thing: a file, a process with its arguments."""


class Way(Protocol):
    """How the router is reached, and as whom."""

    def router(self) -> Http: ...

    def bearer(self) -> Headers:
        """What proves who asks."""
        ...

    def renew(self, used: Headers) -> bool:
        """The router refused it: whether there is another one now."""
        ...


class Explaining(Protocol):
    """Whoever can find out more about an error: what has become of the sandbox."""

    def explained(self, error: SandboxError, ran: Ran) -> SandboxError: ...


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

    def _reached(self) -> tuple[Http, Headers]:
        if self._shut:
            raise Released(self._shut)
        return self._way.router(), self._way.bearer()

    def explained(self, error: SandboxError, ran: Ran = UNHEARD) -> SandboxError:
        """The error that says what has happened to the sandbox, if that is why; `ran` is what it is about."""
        if self._fate is None or self._shut:
            return error
        return self._fate.explained(error, ran)

    def _refused(self, status: int, body: bytes) -> SandboxError:
        return self.explained(refusal(status, body, str(self)))

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

    def request(
        self,
        method: str,
        path: str,
        headers: Headers = (),
        body: bytes = b"",
        timeout: float | None = None,
        limit: int = ANSWER,
    ) -> Response:
        """One request whose answer fits into memory. It is the sandbox that answers: TooLarge if it says more than `limit` bytes."""
        http, proof = self._reached()
        response = http.request(method, path, (*self.headers(), *proof, *headers), body, timeout, limit)
        if response.status == 401 and self._way.renew(proof):
            proof = self._way.bearer()
            response = http.request(method, path, (*self.headers(), *proof, *headers), body, timeout, limit)
        if not response.ok:
            raise self._refused(response.status, response.body)
        return response

    @contextmanager
    def stream(
        self, method: str, path: str, headers: Headers = (), body: Body = b"", timeout: float | None = None
    ) -> Iterator[Answer]:
        """One request with bodies of any size; see Http.stream."""
        http, proof = self._reached()
        with ExitStack() as stack:
            opened = http.stream(method, path, (*self.headers(), *proof, *headers), body, timeout)
            answer = stack.enter_context(opened)
            if answer.status == 401 and isinstance(body, bytes) and self._way.renew(proof):
                stack.close()
                proof = self._way.bearer()
                opened = http.stream(method, path, (*self.headers(), *proof, *headers), body, timeout)
                answer = stack.enter_context(opened)
            if not answer.ok:
                raise self._refused(answer.status, answer.beginning())
            yield answer

    @contextmanager
    def websocket(self, path: str, headers: Headers = (), timeout: float | None = None) -> Iterator[WebSocket]:
        http, proof = self._reached()
        try:
            with http.websocket(path, (*self.headers(), *proof, *headers), timeout) as socket:
                yield socket
        except RefusedUpgrade as refused:
            raise self._refused(refused.response.status, refused.response.body) from None

    @contextmanager
    def upgrade(
        self, path: str, protocol: str, headers: Headers = (), timeout: float | None = None
    ) -> Iterator[tuple[Line, bytes]]:
        """A connection that became a plain byte stream, and what came with the answer already."""
        http, proof = self._reached()
        try:
            with http.upgrade(path, protocol, (*self.headers(), *proof, *headers), timeout) as (line, first):
                yield line, first
        except RefusedUpgrade as refused:
            raise self._refused(refused.response.status, refused.response.body) from None

    def port_url(self, path: str, wish: Mapping[str, object]) -> str:
        """The address of a port, which the router signs."""
        http, proof = self._reached()
        body = json.dumps(wish).encode()
        response = http.request("POST", path, (*proof, ("Content-Type", "application/json")), body, 30.0)
        if response.status >= 400:
            raise self._refused(response.status, response.body)
        answer = response.json()
        if not isinstance(answer, dict) or not isinstance(answer.get("url"), str):
            raise Unreadable(f"{self}: the router gave no address for the port; upgrade it")
        return str(answer["url"])
