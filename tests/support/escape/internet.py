"""All that egress proxies see of the world, owned by the test: names, routes, and who answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from sandpool.node.network.forbidden import Address
from sandpool.node.network.route import Route

PUBLIC_ADDRESS = "1.2.3.4"


@dataclass
class Internet:
    """All that the egress proxies see of the world. Whatever is dialled, a listener on loopback answers: with the secret,
    unless the address is a public one."""

    secret_port: int
    names: dict[str, list[list[str]]] = field(default_factory=lambda: {
        "public.test": [[PUBLIC_ADDRESS]], "own.test": [["8.8.4.4"]], "metadata.test": [["169.254.169.254"]],
        "mapped.test": [["::ffff:127.0.0.1"]], "private.test": [["10.1.2.3"]], "mixed.test": [[PUBLIC_ADDRESS, "10.1.2.3"]],
        "rebinding.test": [[PUBLIC_ADDRESS], ["127.0.0.1"]],
        **{name: [["127.0.0.1"]] for name in ("localhost", "localhost.", "LOCALHOST")},
    })  # fmt: skip
    dialled: list[str] = field(default_factory=list)

    async def resolve(self, name: str) -> Sequence[Address]:
        answers = self.names.get(name.lower())
        if not answers:
            raise OSError(f"no such name: {name}")
        answers.append(answers.pop(0))
        return [ip_address(text) for text in answers[-1]]

    async def connect(self, address: Address, port: int) -> socket.socket:
        if str(address) == PUBLIC_ADDRESS:
            raise ConnectionRefusedError(111, "Connection refused")
        self.dialled.append(f"{address}:{port}")
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.secret_port))
        return sock

    def route(self, address: Address) -> Route:
        return Route.LOCAL if str(address) == "8.8.4.4" else Route.UNICAST
