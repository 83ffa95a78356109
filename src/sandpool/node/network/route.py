"""What the kernel would do with a packet to an address. It is asked (rtnetlink, RTM_GETROUTE); nothing is sent.

This is how the machine's own addresses are known: all of them, as of now, those of tunnels and bridges and whole local
ranges included. No list of interfaces could be that complete.
"""

from __future__ import annotations

import errno
import socket
import struct
from enum import IntEnum

from sandpool.node.network.forbidden import Address

_GETROUTE, _ERROR, _NEWROUTE = 26, 2, 24
_REQUEST = 1
_DESTINATION = 1  # RTA_DST
_HEADER = struct.Struct("=IHHII")
_ROUTE = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_ERRNO = struct.Struct("=i")


class Route(IntEnum):
    """The kernel's RTN_* that matter; whatever else it says is `OTHER`."""

    UNICAST = 1
    LOCAL = 2
    BROADCAST = 3
    ANYCAST = 4
    MULTICAST = 5
    NONE = 100  # there is no way to it: connecting will say why
    OTHER = 101


def route(address: Address) -> Route:
    """OSError if the kernel cannot be asked."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    value = address.packed
    body = _ROUTE.pack(family, address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
    body += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), _DESTINATION) + value
    message = _HEADER.pack(_HEADER.size + len(body), _GETROUTE, _REQUEST, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as kernel:
        kernel.settimeout(1)
        kernel.sendto(message, (0, 0))
        answer = kernel.recv(8192)
    return _read(answer)


def _read(answer: bytes) -> Route:
    _, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind == _ERROR:
        error = -_ERRNO.unpack_from(answer, _HEADER.size)[0]
        return Route.NONE if error in (errno.ENETUNREACH, errno.EHOSTUNREACH) else Route.OTHER
    if kind != _NEWROUTE:
        return Route.OTHER
    found = _ROUTE.unpack_from(answer, _HEADER.size)[7]
    return Route(found) if found in {each.value for each in Route} else Route.OTHER
