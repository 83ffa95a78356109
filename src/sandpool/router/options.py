"""How patient the line is, and how much of anything it takes. Seconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from sandpool.wire.paths import TCP_UPGRADE

WEBSOCKET = b"websocket"


@dataclass(frozen=True, slots=True)
class RouterOptions:
    connections: int = 4096  # of clients at once
    longest_head: int = 32 * 1024
    most_headers: int = 128

    handshake: float = 10.0  # TLS
    head: float = (
        15.0  # from the first byte of a request to the end of its head; and from a connection to its first request
    )
    body: float = 30.0  # for one that the router reads itself
    answer: float = 15.0  # for a client to take what the router says itself
    idle: float = 75.0  # between two requests of a client
    lingering: float = 2.0  # for a client that was answered in the middle of its body
    unread: int = 64 << 20  # bytes of that
    patrol: float = 5.0  # between two looks after a client that nobody reads from
    grace: float = 5.0  # for requests that run when the server stops

    spares: int = 16  # idle connections to one place
    all_spares: int = 256  # idle connections in all
    spare: float = 30.0  # how long one of those is kept

    upgrades: frozenset[bytes] = frozenset({WEBSOCKET, TCP_UPGRADE.encode()})
    half_closed: float = 3600.0  # a byte stream after one side has ended
    websocket_end: float = 5.0  # the same for a WebSocket, which knows no half
