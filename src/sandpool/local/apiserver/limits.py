"""How much one server takes on. Everything is bounded; what does not fit is refused with words, not dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    body: int = 3 * 1024 * 1024  # bytes of a request's body, as Kubernetes
    head: int = 64 * 1024  # bytes of a request's line and headers
    depth: int = 200  # nested objects and lists in a body
    connections: int = 10_000
    requests: int = 2_000  # in flight, watches not counted
    watches: int = 5_000
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
