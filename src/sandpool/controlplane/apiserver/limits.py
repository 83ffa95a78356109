"""Limits of one server, including streams of pods. Everything is bounded; what exceeds a limit is refused with an error, not dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

FILES = 8
"""Approximate number of open files of one stream: its connection, three pipes and their other ends."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one API server."""

    body: int = 3 * 1024 * 1024  # bytes of a request body, as in Kubernetes
    head: int = 64 * 1024  # bytes of the request line and headers
    depth: int = 200  # nested objects and lists in a body
    connections: int = 10_000  # shared by all tenants; the admin has as many again. The next two likewise
    requests: int = 2_000  # in flight until they are answered, watches not counted
    watches: int = 5_000
    handshakes: int = 1_000  # TLS handshakes at a time
    strangers: int = 2_500  # connections without an authenticated request yet
    unsent: int = 256 * 1024 * 1024  # unsent bytes for slow clients of tenants
    snapshots: int = 1024 * 1024 * 1024  # bytes of tenants' long lists that are being sent
    idle: int = 300  # seconds a connection may wait for its next request
    arrival: float = 30.0  # seconds a request may take to arrive, from its first byte (or the handshake) to its last
    stalled: float = 60.0  # seconds a client may leave its response unread
    handshake: float = 10.0
    graceful: float = 10.0  # seconds for requests in flight to finish when the server stops
    watch_shortest: float = 1800.0  # a watch that names no timeout ends at random between these
    watch_longest: float = 3600.0
    bookmark_every: float = 60.0


class Memory(Protocol):
    """Whether memory is short; see memory_pressure.py."""

    @property
    def short(self) -> bool:
        """Whether too little is left: requests are refused."""
        ...

    def noticed(self, error: BaseException) -> bool:
        """Reports an unexpected failure; returns whether lack of memory caused it."""
        ...


class PlentyOfMemory:
    """A Memory that is never short, for servers that do not watch it."""

    short = False

    def noticed(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of exec, attach, port-forward and logs."""

    connections: int = 2_000  # exec, attach, port-forward and logs at a time
    streams: int = 1_024  # of one SPDY connection; each forwarded connection uses two
    held: int = 256 * 1024  # bytes that wait on one stream before reading from its connection pauses
    answers: int = 1024 * 1024  # bytes of replies to frames that may wait for a client that does not read
    opening: float = 30.0  # seconds for a client to open the streams that it needs
    stuck: float = 60.0  # seconds that one forwarded connection may block the others of its client
    quiet: float = 10.0  # seconds between keep-alives to the client, and between checks that it is there
    idle: float = 4 * 3600.0  # seconds without a byte either way before a connection is ended
    linger: float = 5.0  # seconds for the client to close after the end
    first_line: float = 1.0  # seconds to wait for the first piece of a log before the response begins without it
    ports: int = 32  # of one port-forward over channels


def for_files(files: int) -> StreamLimits:
    """Limits with at most as many streams as half of this number of open files allows."""
    return StreamLimits(connections=max(8, min(2_000, files // 2 // FILES)))
