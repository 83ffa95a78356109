"""Names of registries, looked up in threads of their own.

Whoever names an image may also run the name server of its registry, and let it never answer. The event loop's own threads, of which there are
few, are needed for everything else: images that are here, disks that are measured.
"""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from sandpool.node.network.egress.lookups import Lookups


class Resolver(AbstractResolver):
    """For the connections of one pull."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._lookups.ask(host)
        wanted = (each for each in found if family in (socket.AF_UNSPEC, _family(each.version)))
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=_family(address.version),
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in wanted
        ]

    async def close(self) -> None:
        await self._lookups.close()


def _family(version: int) -> socket.AddressFamily:
    return socket.AF_INET if version == 4 else socket.AF_INET6
