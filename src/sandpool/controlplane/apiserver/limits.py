"""How much one server takes on. Everything is bounded; what does not fit is refused with words, not dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    body: int = 3 * 1024 * 1024  # bytes of a request's body, as Kubernetes
    head: int = 64 * 1024  # bytes of a request's line and headers
    depth: int = 200  # nested objects and lists in a body
    connections: int = 10_000  # of all tenants, who share them; the admin has as many again. The same of the next two
    requests: int = 2_000  # in flight until they are answered, watches not counted
    watches: int = 5_000
    handshakes: int = 1_000  # under way at once
    strangers: int = 2_500  # connections on which nobody has said yet who they are
    unsent: int = 256 * 1024 * 1024  # bytes in front of tenants' clients that do not keep up
    snapshots: int = 1024 * 1024 * 1024  # bytes of tenants' long lists that are being sent
    idle: int = 300  # seconds a connection may wait for its next request
    arrival: float = 30.0  # seconds a request may take to arrive, from its first byte (or the handshake) to its last
    stalled: float = 60.0  # seconds a client may leave its answer unread
    handshake: float = 10.0
    graceful: float = 10.0  # seconds for requests in flight to finish at the end
    watch_shortest: float = 1800.0  # a watch that names no timeout ends at random between these
    watch_longest: float = 3600.0
    bookmark_every: float = 60.0


class Memory(Protocol):
    """Who knows how much memory there is."""

    @property
    def short(self) -> bool:
        """Too little to begin anything with: requests are refused."""
        ...

    def noticed(self, error: BaseException) -> bool:
        """Told of what failed unexpectedly; whether lack of memory made it fail."""
        ...


class PlentyOfMemory:
    """Nobody looks."""

    short = False

    def noticed(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)
