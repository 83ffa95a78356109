"""Addresses that no sandbox may reach, whatever its policies allow. Pure.

These are the machine itself, link-local addresses, metadata services of clouds, and everything that is not a single host. An address
that embeds another one (mapped, translated, tunnelled) counts as all of them, and each must be allowed, because a kernel, a router or
a gateway may deliver to any of them.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Block = IPv4Network | IPv6Network

_FORBIDDEN: tuple[tuple[Block, str], ...] = tuple(
    (ip_network(text), why)
    for text, why in (
        ("0.0.0.0/8", "this machine"),
        ("127.0.0.0/8", "this machine's loopback, where other pods are"),
        ("169.254.0.0/16", "link-local, where clouds keep their metadata service"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved or broadcast"),
        ("100.100.100.200/32", "a cloud's metadata service"),
        ("168.63.129.16/32", "a cloud's metadata service"),
        ("192.0.0.192/32", "a cloud's metadata service"),
        ("::/128", "this machine"),
        ("::1/128", "this machine's loopback"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local, which nobody routes any more"),
        ("ff00::/8", "multicast"),
        ("fd00:ec2::254/128", "a cloud's metadata service"),
        ("fd20:ce::254/128", "a cloud's metadata service"),
        ("64:ff9b:1::/48", "a translation prefix of somebody's own, which hides the address behind it"),
    )
)

_COMPATIBLE = IPv6Network("::/96")
_TRANSLATED = IPv6Network("::ffff:0:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)  # the upper half of an interface identifier; the lower one is the IPv4 address


def forbidden(address: Address) -> str:
    """Why no sandbox may reach the address; empty if policies decide."""
    for face in faces(address):
        for block, why in _FORBIDDEN:
            if face.version == block.version and face in block:
                return why
    return ""


@lru_cache(maxsize=1024)
def faces(address: Address) -> tuple[Address, ...]:
    """The address and all addresses embedded in it. For an IPv4-mapped one, only the IPv4 address, as in the kernel."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.scope_id:
        address = IPv6Address(int(address))
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    return (address, *_inside(address))


def _inside(address: IPv6Address) -> tuple[IPv4Address, ...]:
    number = int(address)
    last = IPv4Address(number & 0xFFFFFFFF)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address in _NAT64 or address in _TRANSLATED or (address in _COMPATIBLE and number > 1):
        return (last,)
    if (number >> 32) & 0xFFFFFFFF in _ISATAP:
        return (last,)
    return ()
