"""What an operator can decide about the network of this machine's pods."""

from __future__ import annotations

import resource
from dataclasses import dataclass, field


def _connections() -> int:
    """Half of the files that this process may open: a connection takes two of them."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 16384 if soft == resource.RLIM_INFINITY else max(16, min(16384, soft // 4))


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """Seconds, bytes and counts. The limits are per pod unless they say otherwise."""

    pods: str = "127.64.0.0/10"  # where addresses of pods come from; inside 127.0.0.0/8
    connections: int = field(default_factory=_connections)  # of all pods together
    pod_connections: int = 256  # to declared ports
    egress_connections: int = 128
    egress_rate: int = 128 * 1024 * 1024  # bytes a second, both ways together
    egress_requests: int = 100  # new ones a second; up to three times as many at once
    lookups: int = 4  # names being looked up at once
    total_lookups: int = 64  # of all pods together, which tenants share: one whose names never answer leaves some
    head_timeout: float = 30.0  # to send the head of a request
    lookup_timeout: float = 10.0
    connect_timeout: float = 10.0  # for each address that is tried
    answer_timeout: float = 900.0  # until an origin begins to answer
    idle_timeout: float = 3600.0  # without a byte either way
