"""What the backends ask of the network."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

Dial = Callable[[int], Awaitable[socket.socket]]
"""A connection to a TCP port inside the sandbox, on its loopback: a connected, non-blocking socket that the caller owns."""


@dataclass(frozen=True, slots=True)
class Port:
    number: int
    name: str = ""
    protocol: str = "TCP"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one pod wants of the network."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[Port, ...] = ()
    address: str = ""  # the one it had before, if it ran before


class Attached(Protocol):
    """A pod's part of the network, until `close`."""

    @property
    def address(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know: ports that were mapped to others, protocols that are not served."""
        ...

    def serve_egress(self, listener: socket.socket) -> None:
        """Accepts proxy connections on a socket that listens inside the sandbox. It is owned, and closed, from now on."""
        ...

    def relabel(self, labels: Mapping[str, str]) -> None:
        """The pod's labels are these now: other policies may select it, also for connections that are open."""
        ...

    async def close(self) -> None:
        """No listener, connection or task of it is left."""
        ...


class Network(Protocol):
    async def attach(self, wanted: Wanted, dial: Dial) -> Attached:
        """Takes an address and listens on it for the declared ports. NodeError if there is none."""
        ...

    async def close(self) -> None: ...
