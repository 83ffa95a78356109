"""What passes between the two halves of the router: the gate decides about a request, the line carries it out.

Names of headers are lower-case bytes; values are as they came.
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
    """The head of a request. `path` is as it came: still encoded, with its query."""

    method: bytes
    path: bytes
    headers: Headers
    id: str  # for the audit log and the sandbox: the client's own, or a new one

    def header(self, name: bytes) -> bytes | None:
        """The only value of a header; None if there is none. Whoever reads a head has refused repeated ones that matter."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the router says itself."""

    status: int
    body: Mapping[str, object]  # sent as JSON
    headers: Headers = ()
    caller: str = ""  # who was answered, as far as that is known
    about: Key | None = None  # the sandbox that was asked for, as far as that is known


def _nothing() -> int:
    return 0


@dataclass(slots=True, eq=False)
class Flow:
    """What has been carried so far: bytes of bodies, and of what follows an upgrade, both ways. The line says how to count; who
    asks again later and finds the same number knows that nothing has moved."""

    count: Callable[[], int] = _nothing


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that goes on: to whom, over which connection, and as what."""

    target: Target
    caller: str
    path: bytes  # what the sandbox is asked for
    connect: Callable[[], Awaitable[socket.socket]] = field(compare=False)  # raises NoAnswer
    pool: str  # connections with the same word lead to the same place and may be used again
    drop: frozenset[bytes] = frozenset()  # headers that the sandbox does not get
    add: Headers = ()
    prefix: bytes = b""  # of the addresses that the client sees: redirects are completed with it
    timeout: float | None = None  # seconds until the answer begins
    port: int | None = None  # None: boxd
    tenant: str = ""  # on whose account it is; empty: an administrator's
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
    """Decides, and hears how it went."""

    async def admit(self, request: Request, peer: Peer, body: Callable[[int], Awaitable[bytes]]) -> Admitted | Answer:
        """`body` reads the request's body, at most so many bytes: only for what the router answers itself."""
        ...

    def finished(self, request: Request, peer: Peer, decided: Admitted | Answer, outcome: Outcome) -> None: ...
