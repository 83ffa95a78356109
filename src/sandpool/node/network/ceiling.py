"""What NetworkPolicies may open at most: the operator's word, which stands above that of every tenant. Pure.

A sandbox reaches what its policies allow and the ceiling holds; each is asked about the address itself, after a name was looked up,
and about every address that may stand inside of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network

from sandpool.node.network.forbidden import Address, Block
from sandpool.node.network.rule import ALL_PORTS, Range, Rule, part_of

NOTHING = "none"
"""The word for a ceiling below which there is nothing."""
_EVERYWHERE = (Range(ip_network("0.0.0.0/0")), Range(ip_network("::/0")))
_FORM = "write CIDR or CIDR:PORTS, such as 203.0.113.0/24, 10.1.0.0/16:443,8000-8999 or 2001:db8::/32:443"


@dataclass(frozen=True, slots=True)
class Ceiling:
    """`rules` is None where policies alone decide."""

    rules: tuple[Rule, ...] | None = None

    def opens(self, port: int) -> bool:
        return self.rules is None or any(rule.opens(port) for rule in self.rules)

    def reaches(self, address: Address, port: int) -> bool:
        return self.rules is None or any(rule.reaches(address, port) for rule in self.rules)

    def holds(self, asked: Iterable[Rule]) -> bool:
        """Whether all of these rules lie below it; a policy's exceptions are not looked at."""
        return self.rules is None or all(
            self._covers(each.block, ports)
            for rule in asked
            for each in (_EVERYWHERE if rule.ranges is None else rule.ranges)
            for ports in rule.ports
            if ports
        )

    def _covers(self, block: Block, ports: range) -> bool:
        blocks = [
            each.block
            for rule in self.rules or ()
            if any(open_.start <= ports.start and ports.stop <= open_.stop for open_ in rule.ports)
            for each in rule.ranges or ()
        ]
        return any(part_of(block, larger) for larger in _collapsed(blocks))


UNLIMITED = Ceiling()


class CeilingError(ValueError):
    """Text that is no part of a ceiling, and what to write instead."""


def ceiling_of(texts: Sequence[str]) -> Ceiling:
    """From what an operator wrote. Nothing at all: no ceiling."""
    if not texts:
        return UNLIMITED
    if NOTHING in texts:
        if len(texts) > 1:
            raise CeilingError(f"{NOTHING!r} means that nothing can be reached: leave it out, or everything else")
        return Ceiling(())
    return Ceiling(tuple(_rule(text) for text in texts))


def _rule(text: str) -> Rule:
    address, slash, rest = text.partition("/")
    length, colon, ports = rest.partition(":")
    try:
        block = ip_network(f"{address}/{length}", strict=True)
    except ValueError as error:
        raise CeilingError(f"{text!r}: {error}; {_FORM}") from error
    if not slash or (colon and not ports):
        raise CeilingError(f"{text!r}: {_FORM}")
    return Rule((Range(block),), tuple(_ports(text, each) for each in ports.split(",")) if ports else (ALL_PORTS,))


def _ports(text: str, ports: str) -> range:
    first, dash, last = ports.partition("-")
    numbers = (first, last if dash else first)
    if not all(number.isascii() and number.isdigit() and len(number) <= 5 for number in numbers):
        raise CeilingError(f"{text!r}: {ports!r} is no port; {_FORM}")
    low, high = int(numbers[0]), int(numbers[1])
    if not 1 <= low <= high <= 65535:
        raise CeilingError(f"{text!r}: ports lie between 1 and 65535, the lower one first; {_FORM}")
    return range(low, high + 1)


def _collapsed(blocks: Iterable[Block]) -> list[Block]:
    blocks = list(blocks)
    return [
        *collapse_addresses(block for block in blocks if isinstance(block, IPv4Network)),
        *collapse_addresses(block for block in blocks if isinstance(block, IPv6Network)),
    ]
