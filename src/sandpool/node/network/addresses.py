"""Addresses for pods out of one private range, each given once at a time, longest unused first."""

from __future__ import annotations

import ipaddress

from sandpool.base.errors import NodeError


class Addresses:
    """Nothing is configured on any interface; an address is only a name that no two pods share."""

    def __init__(self, network: str) -> None:
        self._network = ipaddress.IPv4Network(network)
        self._used: set[str] = set()
        self._next = 1  # the network's own address and the broadcast are never given

    def take(self, wanted: str = "") -> str:
        """The wanted one if it is ours and free, else the next free one."""
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
        """How many are given."""
        return len(self._used)

    def _holds(self, address: str) -> bool:
        try:
            return 0 < int(ipaddress.IPv4Address(address)) - int(self._network[0]) < self._network.num_addresses - 1
        except ValueError:
            return False
