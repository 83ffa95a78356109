"""What one egress rule opens: blocks of addresses, and ports. Pure. NetworkPolicies and the operator's ceiling are made of these."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network

from sandpool.node.network.forbidden import Address, Block

ALL_PORTS = range(1, 65536)
SHARED = ip_network("100.64.0.0/10")
"""Neither public nor private: what providers use among themselves. Only a block inside of it means it; "everywhere" does not."""


@dataclass(frozen=True, slots=True)
class Range:
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
