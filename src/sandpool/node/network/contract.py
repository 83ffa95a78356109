"""The contract between pods and the node's network, and the network's options."""

from __future__ import annotations

import resource
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

Dial = Callable[[int], Awaitable[socket.socket]]
"""Connects to a TCP port on the sandbox's loopback. Returns a connected, non-blocking socket that the caller owns."""


@dataclass(frozen=True, slots=True)
class Port:
    """A declared port of a container."""

    number: int
    name: str = ""
    protocol: str = "TCP"


@dataclass(frozen=True, slots=True)
class NetworkRequest:
    """What one pod requests from the network."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[Port, ...] = ()
    address: str = ""  # its earlier address, if it ran before


class Attachment(Protocol):
    """A pod's part of the network, until `close`."""

    @property
    def address(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know: ports that were mapped to others, protocols that are not served."""
        ...

    def serve_egress(self, listener: socket.socket) -> None:
        """Accepts proxy connections on a socket that listens inside the sandbox; the attachment owns and closes it."""
        ...

    def relabel(self, labels: Mapping[str, str]) -> None:
        """Sets the pod's labels: other policies may select it now, which applies to open connections, too."""
        ...

    async def close(self) -> None:
        """Closes all its listeners, connections and tasks."""
        ...


class Network(Protocol):
    """The network service of the node."""

    async def attach(self, wanted: NetworkRequest, dial: Dial) -> Attachment:
        """Assigns an address and listens on it for the declared ports. NodeError if none is free."""
        ...

    async def close(self) -> None: ...


def _connections() -> int:
    """Half of the open file limit of this process, because a connection takes two descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 16384 if soft == resource.RLIM_INFINITY else max(16, min(16384, soft // 4))


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """Seconds, bytes and counts. The limits are per pod unless they say otherwise."""

    pods: str = "127.64.0.0/10"  # the range of pod addresses, inside 127.0.0.0/8
    connections: int = field(default_factory=_connections)  # of all pods together
    pod_connections: int = 256  # to declared ports
    egress_connections: int = 128
    egress_rate: int = 128 * 1024 * 1024  # bytes per second, both directions together
    egress_requests: int = 100  # new requests per second, with bursts of three times as many
    lookups: int = 4  # concurrent DNS lookups
    total_lookups: int = 64  # of all pods together. Tenants share them: one whose lookups hang leaves slots for others
    head_timeout: float = 30.0  # to send the head of a request
    lookup_timeout: float = 10.0
    connect_timeout: float = 10.0  # for each address that is tried
    answer_timeout: float = 900.0  # until an origin begins to respond
    idle_timeout: float = 3600.0  # without a byte in either direction
