"""Egress rules: address blocks and ports, and the operator's ceiling above all NetworkPolicies. Pure.

A sandbox may reach what both its policies and the ceiling allow. Both are applied to the resolved address, not to the name, and to every
address that may be embedded in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network

from sandpool.node.network.forbidden import Address, Block

ALL_PORTS = range(1, 65536)
SHARED = ip_network("100.64.0.0/10")
"""Shared address space of providers (RFC 6598), neither public nor private. Only a block inside this range matches it; "everywhere" does not."""


@dataclass(frozen=True, slots=True)
class Range:
    """A block of addresses with exceptions."""

    block: Block
    but: tuple[Block, ...] = ()

    def holds(self, address: Address) -> bool:
        return (
            _within(address, self.block)
            and not any(_within(address, block) for block in self.but)
            and (not _within(address, SHARED) or part_of(self.block, SHARED))
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """Address ranges and ports that may be reached together."""

    ranges: tuple[Range, ...] | None  # None: everywhere
    ports: tuple[range, ...]

    def reaches(self, address: Address, port: int) -> bool:
        if not self.opens(port):
            return False
        if self.ranges is None:
            return not _within(address, SHARED)
        return any(each.holds(address) for each in self.ranges)

    def opens(self, port: int) -> bool:
        return any(port in ports for ports in self.ports) and self.ranges != ()


def part_of(block: Block, larger: Block) -> bool:
    return block.version == larger.version and block.subnet_of(larger)  # type: ignore[arg-type]


def _within(address: Address, block: Block) -> bool:
    return address.version == block.version and address in block


NOTHING = "none"
"""The value of the flag for a ceiling that allows nothing."""
_EVERYWHERE = (Range(ip_network("0.0.0.0/0")), Range(ip_network("::/0")))
_FORM = "write CIDR or CIDR:PORTS, such as 203.0.113.0/24, 10.1.0.0/16:443,8000-8999 or 2001:db8::/32:443"


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The operator's upper limit. `rules` is None if policies alone decide."""

    rules: tuple[Rule, ...] | None = None

    def opens(self, port: int) -> bool:
        return self.rules is None or any(rule.opens(port) for rule in self.rules)

    def reaches(self, address: Address, port: int) -> bool:
        return self.rules is None or any(rule.reaches(address, port) for rule in self.rules)

    def holds(self, asked: Iterable[Rule]) -> bool:
        """Whether all these rules are within the ceiling. Ignores the exceptions in a policy's blocks."""
        return self.rules is None or all(map(self._holds, asked))

    def _holds(self, asked: Rule) -> bool:
        """Whether one rule is within the ceiling. Ports that the same ceiling rules open are checked together: checking each port with each block
        could take a million comparisons."""
        blocks = {each.block for each in (_EVERYWHERE if asked.ranges is None else asked.ranges)}
        opened = {self._opening(ports) for ports in asked.ports if ports}
        return all(_covered(blocks, rules) for rules in opened)

    def _opening(self, ports: range) -> tuple[Rule, ...]:
        """The rules that open all of these ports."""
        return tuple(
            rule
            for rule in self.rules or ()
            if any(open_.start <= ports.start and ports.stop <= open_.stop for open_ in rule.ports)
        )


def _covered(blocks: Iterable[Block], rules: Iterable[Rule]) -> bool:
    larger = _collapsed(each.block for rule in rules for each in rule.ranges or ())
    return all(any(part_of(block, each) for each in larger) for block in blocks)


UNLIMITED = Ceiling()


class CeilingError(ValueError):
    """Invalid text; the message says what to write instead."""


def ceiling_of(texts: Sequence[str]) -> Ceiling:
    """Parses what the operator wrote. No texts: no ceiling."""
    if not texts:
        return UNLIMITED
    if NOTHING in texts:
        if len(texts) > 1:
            raise CeilingError(f"{NOTHING!r} means that nothing can be reached: use it alone, or leave it out")
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
        raise CeilingError(f"{text!r}: {ports!r} is not a port; {_FORM}")
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
