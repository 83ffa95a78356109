"""Asks the kernel how it would route a packet to an address (rtnetlink, RTM_GETROUTE). Nothing is sent.

This finds all current addresses of the machine itself, including those of tunnels, bridges and whole local ranges. A list of interfaces
would be incomplete.
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
    """The RTN_* types of the kernel that matter here; `OTHER` for the rest."""

    UNICAST = 1
    LOCAL = 2
    BROADCAST = 3
    ANYCAST = 4
    MULTICAST = 5
    NONE = 100  # no route: connecting will fail and say why
    OTHER = 101


def route(address: Address) -> Route:
    """The type of the kernel's route to the address. OSError if the request fails."""
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
