"""Closes the listening sockets of a network namespace, whoever holds them.

A sandbox can pass a socket to another one. The connections to a listening socket that nobody accepts are charged to no control group, belong to
the network of the sandbox that made the socket, and stay when that sandbox is killed.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.namespaces import lower_loopback

NETLINK_SOCK_DIAG = 4
BY_FAMILY, DESTROY = 20, 21  # SOCK_DIAG_BY_FAMILY, SOCK_DESTROY
REQUEST, ACKNOWLEDGE, DUMP = 1, 4, 0x300
DONE, FAILED = 3, 2
LISTENING, UNCOUNTED = (
    10,
    (3, 6, 12),
)  # states; the kernel does not count what is being connected or was closed as a socket
HEADER, SOCKET_ID = 16, 48
BUFFER = 1 << 16


@dataclass(frozen=True, slots=True)
class TcpSocket:
    family: int
    state: int
    identity: bytes  # as the kernel wants it back

    @property
    def port(self) -> int:
        return int.from_bytes(self.identity[:2], "big")


def close_listeners(net: int, egress: int) -> None:
    """Enters the namespace and closes its listening TCP sockets, and with them all connections that they have not accepted; not that of the egress
    port, which is ours. OSError where the kernel cannot do that (CONFIG_INET_DIAG_DESTROY)."""
    kernel.setns(net, kernel.CLONE_NEWNET)
    with _diag() as diag:
        _close(diag, foreign_listeners(tcp_sockets(diag), egress))


def close_left(nets: Sequence[int], egress: int) -> None:
    """If sandboxes that have ended left sockets with others, closes them, and lets nobody connect there any more. A namespace may belong to a fork
    server that has ended, with everything in it."""
    for net in nets:
        with contextlib.suppress(OSError):
            kernel.setns(net, kernel.CLONE_NEWNET)
            used = sockets_used()
            with _diag() as diag:
                found = list(tcp_sockets(diag))
                listeners = foreign_listeners(found, egress)
                if listeners or any_other(used, found):
                    lower_loopback()
                    _close(diag, listeners)


def foreign_listeners(found: Sequence[TcpSocket] | Iterator[TcpSocket], egress: int) -> list[TcpSocket]:
    return [each for each in found if each.state == LISTENING and each.port != egress]


def any_other(used: int, found: Sequence[TcpSocket]) -> bool:
    """Whether there are sockets that are not TCP, or are neither connected nor listening yet. We have none of those in an ended sandbox; connections
    may be ours."""
    return used > sum(each.state not in UNCOUNTED for each in found)


def sockets_used() -> int:
    """The number of sockets of this network namespace."""
    with open("/proc/self/net/sockstat") as file:
        return int(file.readline().split()[2])  # sockets: used 3


def _diag() -> socket.socket:
    """A socket of the machine's own network would not do: it asks about the namespace in which it was made."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)


def tcp_sockets(diag: socket.socket) -> Iterator[TcpSocket]:
    for family in (socket.AF_INET, socket.AF_INET6):
        _ask(diag, BY_FAMILY, REQUEST | DUMP, family, bytes(SOCKET_ID))
        yield from _answers(diag)


def _answers(diag: socket.socket) -> Iterator[TcpSocket]:
    while True:
        data = diag.recv(BUFFER)
        while data:
            length, kind = struct.unpack_from("=IH", data)
            if kind in (DONE, FAILED) or length < HEADER:
                return
            family, state = data[HEADER], data[HEADER + 1]
            yield TcpSocket(family, state, data[HEADER + 4 : HEADER + 4 + SOCKET_ID])
            data = data[-(-length // 4) * 4 :]


def _close(diag: socket.socket, sockets: Sequence[TcpSocket]) -> None:
    for each in sockets:
        _ask(diag, DESTROY, REQUEST | ACKNOWLEDGE, each.family, each.identity)
        diag.recv(BUFFER)  # the acknowledgement; the socket may have been closed meanwhile


def _ask(diag: socket.socket, kind: int, flags: int, family: int, identity: bytes) -> None:
    body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + identity
    diag.send(struct.pack("=IHHII", HEADER + len(body), kind, flags, 1, 0) + body)
