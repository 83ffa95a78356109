"""The values between the two halves of the router: the gate decides about a request, the server carries out the decision.

Header names are lower-case bytes; header values are unchanged.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sandpool.model.metadata import Key
from sandpool.router.ports import Caller, Target

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a client's connection. `proved` is set where the connection itself proves who it is: a port-forward that
    the API server has let through."""

    address: str
    proved: Caller | None = None
    secure: bool = False  # whether it came over TLS


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request. `path` is unchanged: still encoded, with its query."""

    method: bytes
    path: bytes
    headers: Headers
    id: str  # for the audit log and the sandbox: the client's own, or a new one

    def header(self, name: bytes) -> bytes | None:
        """The value of a header; None if there is none. The parser has refused repeated headers that matter."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the router itself."""

    status: int
    body: Mapping[str, object]  # sent as JSON
    headers: Headers = ()
    caller: str = ""  # the caller, if known
    about: Key | None = None  # the requested sandbox, if known


def _nothing() -> int:
    return 0


@dataclass(slots=True, eq=False)
class Flow:
    """Bytes copied so far in both directions: of bodies, and after an upgrade. The server sets the counter; an unchanged number means
    that no bytes flowed in between."""

    count: Callable[[], int] = _nothing


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request to forward: to which sandbox, over which connection, and with which changes."""

    target: Target
    caller: str
    path: bytes  # the request target for the sandbox
    connect: Callable[[], Awaitable[socket.socket]] = field(compare=False)  # raises NoAnswer
    pool: str  # connections with the same key lead to the same place and may be reused
    drop: frozenset[bytes] = frozenset()  # headers that are not forwarded
    add: Headers = ()
    prefix: bytes = b""  # the prefix of paths that the client sees; added to redirects
    timeout: float | None = None  # seconds until the answer begins
    port: int | None = None  # None: boxd
    tenant: str = ""  # the tenant it is charged to; empty: an administrator's
    flow: Flow = field(default_factory=Flow, compare=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended. Bytes are those of bodies, and of what follows an upgrade."""

    status: int
    received: int
    sent: int
    seconds: float
    error: str = ""  # one word: refused, reset, timeout, client, ...


class Gate(Protocol):
    """Decides about requests, and is told how they ended."""

    async def admit(self, request: Request, peer: Peer, body: Callable[[int], Awaitable[bytes]]) -> Admitted | Answer:
        """`body` reads the request's body, at most so many bytes: only for what the router answers itself."""
        ...

    def finished(self, request: Request, peer: Peer, decided: Admitted | Answer, outcome: Outcome) -> None: ...
