"""Assigns pod addresses from a private loopback range, and opens the sockets that listen on them for a pod's declared ports.

A port that cannot be bound (a privilege is missing, or another program listens on it on all addresses) is replaced by a free one, and a
note says so. No listener is left open if something fails.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from sandpool.base.errors import NodeError
from sandpool.node.network.contract import Port


class AddressPool:
    """Assigns addresses. Nothing is configured on an interface: all of 127.0.0.0/8 is local anyway."""

    def __init__(self, network: str) -> None:
        self._network = ipaddress.IPv4Network(network)
        self._used: set[str] = set()
        self._next = 1  # the network address and the broadcast address are never assigned

    def take(self, wanted: str = "") -> str:
        """The wanted address if it is in the range and free, else the next free one."""
        if wanted and wanted not in self._used and self._holds(wanted):
            self._used.add(wanted)
            return wanted
        last = self._network.num_addresses - 2
        for _ in range(min(len(self._used) + 1, last)):
            address = str(self._network[self._next])
            self._next = self._next % last + 1
            if address not in self._used:
                self._used.add(address)
                return address
        raise NodeError(
            "NoAddress", f"all {last} addresses of {self._network} are in use; delete pods or choose a larger network"
        )

    def give_back(self, address: str) -> None:
        self._used.discard(address)

    def __len__(self) -> int:
        """How many are assigned."""
        return len(self._used)

    def _holds(self, address: str) -> bool:
        try:
            return 0 < int(ipaddress.IPv4Address(address)) - int(self._network[0]) < self._network.num_addresses - 1
        except ValueError:
            return False


_OFFSETS = (8000, 18000, 28000, 38000, 48000)  # 80 becomes 8080 and 443 becomes 8443, where they are free
_BACKLOG = 256


@dataclass(frozen=True, slots=True)
class Listening:
    """A listener for one declared port, and a note if it listens on another port."""

    port: int  # the declared port, inside the sandbox
    listener: socket.socket
    note: str = ""


class Occupied(Exception):
    """A port is taken on this address; on another one it may be free."""


def listen(address: str, ports: Iterable[Port], *, replace: bool) -> tuple[Listening, ...]:
    """Opens a listener for each TCP port. Without `replace`, raises Occupied if a port is taken."""
    wanted = sorted(
        {port.number for port in ports if port.protocol == "TCP"}, reverse=True
    )  # high ports first, so that replacements do not take them
    made: list[Listening] = []
    try:
        for number in wanted:
            made.append(_one(address, number, wanted, replace))  # noqa: PERF401 - if one fails, those already open must be closed
    except BaseException:
        for each in made:
            each.listener.close()
        raise
    return tuple(made)


def unserved(ports: Iterable[Port]) -> tuple[str, ...]:
    """Notes for the user about ports of other protocols."""
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
    raise NodeError(
        "CannotListen", f"no port is free on {address} to replace {number}; stop the programs that use them"
    )


def _bound(address: str, number: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections may be in TIME_WAIT
        listener.bind((address, number))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
