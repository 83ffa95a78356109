"""Negotiates the upgrade of a connection: WebSocket or SPDY/3.1, and the subprotocol. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sandpool.kube.errors import ApiError, BadRequest, Forbidden
from sandpool.wire.websocket import accept_key, usable_key

Headers = list[tuple[bytes, bytes]]

STREAM_PROTOCOL: Final = b"x-stream-protocol-version"
SPDY: Final = "SPDY/3.1"
TUNNEL: Final = "SPDY/3.1+portforward.k8s.io"
FORWARD: Final = "portforward.k8s.io"


@dataclass(frozen=True, slots=True)
class Channels:
    """The protocol that carries several streams over a WebSocket: the first byte of a message is the stream. `version` is that in
    the protocol's name: since 4 a status is JSON, since 5 a stream can be closed."""

    version: int
    base64: bool = False


COMMAND_SOCKETS: Final = {
    "v5.channel.k8s.io": Channels(5),
    "v4.channel.k8s.io": Channels(4),
    "v4.base64.channel.k8s.io": Channels(4, base64=True),
    "v3.channel.k8s.io": Channels(3),
    "v2.channel.k8s.io": Channels(2),
    "channel.k8s.io": Channels(1),
    "base64.channel.k8s.io": Channels(1, base64=True),
}
COMMAND_STREAMS: Final = {
    "v5.channel.k8s.io": 5,
    "v4.channel.k8s.io": 4,
    "v3.channel.k8s.io": 3,
    "v2.channel.k8s.io": 2,
    "channel.k8s.io": 1,
}
FORWARD_SOCKETS: Final = {
    TUNNEL: None,
    "v4.channel.k8s.io": Channels(4),
    "v4.base64.channel.k8s.io": Channels(4, base64=True),
}


@dataclass(frozen=True, slots=True)
class UpgradeChoice:
    """An upgrade that can be granted. `protocol` is empty if the client named none."""

    websocket: bool
    protocol: str
    headers: Headers  # of the response


def negotiate_upgrade(headers: Headers, sockets: Iterable[str], streams: Iterable[str]) -> UpgradeChoice:
    """The client's first choice that is supported. Raises BadRequest if it requests no upgrade, or none that is supported."""
    kind = b", ".join(_values(headers, b"upgrade")).strip().lower()
    asks = any(word.strip() == b"upgrade" for word in b",".join(_values(headers, b"connection")).lower().split(b","))
    if not asks or not kind:
        raise BadRequest("Upgrade request required")
    if kind == b"websocket":
        return _websocket(headers, list(sockets))
    if kind == SPDY.lower().encode():
        return _spdy(headers, list(streams))
    raise BadRequest(f"unable to upgrade: this server upgrades to websocket and {SPDY}")


def _websocket(headers: Headers, served: list[str]) -> UpgradeChoice:
    key = b"".join(_values(headers, b"sec-websocket-key")).strip()
    if _values(headers, b"sec-websocket-version") != [b"13"]:
        raise UpgradeRequired("unable to upgrade: version 13 of the WebSocket protocol is served")
    if not usable_key(key):
        raise BadRequest("unable to upgrade: Sec-WebSocket-Key must be 16 bytes in base64")
    answer = [(b"upgrade", b"websocket"), (b"sec-websocket-accept", accept_key(key))]
    chosen = _choose(_values(headers, b"sec-websocket-protocol"), served)
    if chosen:
        answer.append((b"sec-websocket-protocol", chosen.encode()))
    return UpgradeChoice(True, chosen, answer)


def _spdy(headers: Headers, served: list[str]) -> UpgradeChoice:
    chosen = _choose(_values(headers, STREAM_PROTOCOL), served)
    answer = [(b"upgrade", SPDY.encode())]
    if chosen:
        answer.append((STREAM_PROTOCOL, chosen.encode()))
    return UpgradeChoice(False, chosen, answer)


def _choose(offered: list[bytes], served: list[str]) -> str:
    names = [word.strip().decode("latin-1") for value in offered for word in value.split(b",") if word.strip()]
    if not names:
        return ""
    for name in names:
        if name in served:
            return name
    shown = " ".join(name for name in names if name.isprintable())[:200]
    raise Forbidden(
        f"unable to upgrade: unable to negotiate protocol: client supports [{shown}], server accepts [{' '.join(served)}]"
    )


class UpgradeRequired(ApiError):
    status, reason = 426, "UpgradeRequired"


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]
