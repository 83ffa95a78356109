"""Tenants of a local server: a namespace each, and a token that is bound to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from support.api.local_server import Answered, LocalServer


@dataclass(slots=True)
class Tenant:
    server: LocalServer
    namespace: str
    token: str = field(repr=False)

    @property
    def maps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    async def request(self, method: str, path: str, body: Any = None, **options: Any) -> Answered:
        return await self.server.request(method, path, body, token=self.token, **options)

    async def store(self, name: str, size: int = 0) -> Answered:
        return await self.request("POST", self.maps, {"metadata": {"name": name}, "data": {"x": "x" * size}})

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[aiohttp.ClientResponse]:
        sent = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        async with self.server.session.get(f"{self.server.url}{self.maps}?watch=true", headers=sent) as response:
            yield response

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.server.port, ssl=self.server.tls())

    def head(self, method: str, path: str, more: str = "") -> bytes:
        return f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\n{more}\r\n".encode()


async def tenant(server: LocalServer, namespace: str) -> Tenant:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    assert (await server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})).status == 201
    assert (await server.request("POST", accounts, {"metadata": {"name": "user"}})).status == 201
    answer = await server.request("POST", f"{accounts}/user/token", {"spec": {}})
    return Tenant(server, namespace, answer.json["status"]["token"])
