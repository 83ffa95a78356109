"""Timeouts and limits of the router's connections, in seconds and bytes."""

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
    body: float = 30.0  # for a body that the router reads itself
    answer: float = 15.0  # for a client to read a response of the router itself
    idle: float = 75.0  # between two requests of a client
    lingering: float = 2.0  # for a client that was answered in the middle of its body
    unread: int = 64 << 20  # bytes of that
    hangup_check: float = 5.0  # between two checks whether a client that nobody reads from has hung up
    grace: float = 5.0  # for requests in flight when the server stops

    spares: int = 16  # idle connections to one sandbox port
    all_spares: int = 256  # idle connections in all
    spare: float = 30.0  # how long one of those is kept

    upgrades: frozenset[bytes] = frozenset({WEBSOCKET, TCP_UPGRADE.encode()})
    half_closed: float = 3600.0  # a byte stream after one side has ended
    websocket_end: float = 5.0  # the same for a WebSocket, which cannot be half closed
