"""The way to pods by their addresses, for a router that is in the same network. boxd listens at a port like any other.

An address comes from the status of a Sandbox. Whoever may write that could name any: those that no pod has are refused, so that
nobody is led to this very machine or to what a cloud serves beside it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from ipaddress import ip_address

from sandpool.router.ports import NoAnswer, Target
from sandpool.wire.headers import DEFAULT_PORT

PATIENCE = 5.0
"""Seconds for a connection. A pod is near: one that does not answer by then is gone."""


class PodReach:
    """A Reach. `loopback`: pods may have addresses of this machine."""

    def __init__(self, daemon_port: int = DEFAULT_PORT, patience: float = PATIENCE, *, loopback: bool = False) -> None:
        self._daemon_port = daemon_port
        self._patience = patience
        self._loopback = loopback

    async def daemon(self, target: Target) -> socket.socket:
        return await self.port(target, self._daemon_port)

    async def port(self, target: Target, port: int) -> socket.socket:
        family = _family(target.address, self._loopback)
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self._patience):
                await asyncio.get_running_loop().sock_connect(connection, (target.address, port))
        except OSError as error:  # a timeout is one, too
            connection.close()
            why = os.strerror(error.errno) if error.errno else "no answer in time"
            raise NoAnswer(f"port {port} of pod {target.pod}: {why}") from error
        except BaseException:
            connection.close()
            raise
        return connection


def _family(address: str, loopback: bool) -> socket.AddressFamily:
    try:
        found = ip_address(address)
    except ValueError:
        raise NoAnswer(f"{address!r} is no address") from None
    mapped = getattr(found, "ipv4_mapped", None)
    real = mapped or found
    odd = real.is_unspecified or real.is_link_local or real.is_multicast or real.is_reserved
    if not loopback if real.is_loopback else odd:
        raise NoAnswer(f"{address} is not the address of a pod")
    return socket.AF_INET6 if found.version == 6 else socket.AF_INET
