"""Sockets that listen for a pod's declared ports on its address of this machine's loopback.

A port that cannot be had (a privilege is missing, or another program listens on it everywhere) is replaced by a free one, and a
note says so. No listener is left if something fails.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from sandpool.base.errors import NodeError
from sandpool.node.network.port import Port

_OFFSETS = (8000, 18000, 28000, 38000, 48000)  # 80 becomes 8080 and 443 becomes 8443, where they are free
_BACKLOG = 256


@dataclass(frozen=True, slots=True)
class Listening:
    port: int  # inside
    listener: socket.socket
    note: str = ""


class Occupied(Exception):
    """A port is taken on this address; on another one it may be free."""


def listen(address: str, ports: Iterable[Port], *, replace: bool) -> tuple[Listening, ...]:
    """One for each TCP port. Without `replace`, Occupied if one is taken."""
    wanted = sorted({port.number for port in ports if port.protocol == "TCP"}, reverse=True)  # replacements come last
    made: list[Listening] = []
    try:
        for number in wanted:
            made.append(_one(address, number, wanted, replace))  # noqa: PERF401 - what was made must be known when one fails
    except BaseException:
        for each in made:
            each.listener.close()
        raise
    return tuple(made)


def unserved(ports: Iterable[Port]) -> tuple[str, ...]:
    """What the user should know about ports of other protocols."""
    others = sorted({(port.protocol, port.number) for port in ports if port.protocol != "TCP"})
    return tuple(
        f"Port {number}/{protocol} is not reachable from outside of the pod: only TCP is carried on this machine."
        for protocol, number in others
    )


def _one(address: str, number: int, wanted: Iterable[int], replace: bool) -> Listening:
    try:
        return Listening(number, _bound(address, number))
    except PermissionError:
        why = "needs a privilege that this user lacks"
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise NodeError("CannotListen", f"cannot listen on {address}:{number}: {error.strerror}") from error
        if not replace:
            raise Occupied from error
        why = "is taken by another program of this machine, on all addresses"
    listener = _instead(address, number, frozenset(wanted))
    got = listener.getsockname()[1]
    return Listening(number, listener, f"Port {number} {why}: it is reachable as {address}:{got}.")


def _instead(address: str, number: int, wanted: frozenset[int]) -> socket.socket:
    candidates = [number + offset for offset in _OFFSETS if number + offset < 65536]
    for candidate in (*(each for each in candidates if each not in wanted), 0):
        try:
            return _bound(address, candidate)
        except OSError:
            continue
    raise NodeError("CannotListen", f"no port is free on {address} in place of {number}; close what holds them")


def _bound(address: str, number: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier life may linger
        listener.bind((address, number))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
