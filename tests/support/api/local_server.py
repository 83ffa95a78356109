"""A real API server over a real store, on a free loopback port, in a folder of its own.

    async with local_server(tmp_path) as server:
        server.url, server.ca, server.token, server.kubeconfig, server.objects

`python -m support.api.local_server [folder]` (from tests/) runs one until Ctrl-C, to try things by hand.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from sandpool.controlplane.apiserver.access.directory import Access, open_access, write_kubeconfig
from sandpool.controlplane.apiserver.handlers.runtime import Runtime
from sandpool.controlplane.apiserver.server import ApiServer, ServerOptions
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.controlplane.store.writer import Bounds
from sandpool.model.kinds import NAMESPACES, SERVICE_ACCOUNTS

FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


@dataclass(slots=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass(slots=True)
class LocalServer:
    server: ApiServer
    objects: Objects
    store: Store
    access: Access
    folder: Path
    session: aiohttp.ClientSession = field(repr=False)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def token(self) -> str:
        return self.access.admin_token

    @property
    def ca(self) -> Path:
        return self.folder / "access" / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str | None = "application/json",
        token: str | None = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answered:
        """One request as the admin (`token=None`: as nobody). A body that is bytes is sent as it is."""
        sent = {"Accept": "application/json", **(headers or {})}
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.token}"
        skip = []
        if body is not None and content_type:
            sent["Content-Type"] = content_type
        else:
            skip = ["Content-Type"]
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        async with self.session.request(
            method, self.url + path, data=data, headers=sent, skip_auto_headers=skip, allow_redirects=False
        ) as response:
            return Answered(response.status, response.headers, await response.read())


async def _open_store(folder: Path, memory: bool, window: int) -> Store:
    log = MemoryLog(window) if memory else SqliteLog(folder / "store.db", Bounds(window=window))
    return await Store.open(log, history_limits=HistoryLimits(changes=window))


async def first_objects(objects: Objects) -> None:
    """The namespaces and accounts that every cluster starts with."""
    for name in FIRST_NAMESPACES:
        await objects.create(NAMESPACES, "", {"metadata": {"name": name}})
        await objects.create(SERVICE_ACCOUNTS, name, {"metadata": {"name": "default"}})


@asynccontextmanager
async def local_server(
    folder: Path,
    *,
    memory: bool = True,
    window: int = 20_000,  # how many changes are remembered
    options: ServerOptions = ServerOptions(),
    runtime: Runtime | None = None,
    **more: Any,  # for Objects
) -> AsyncIterator[LocalServer]:
    store = await _open_store(folder, memory, window)
    objects = Objects(store, options.now, lambda: str(uuid.uuid4()), **more)
    if not store.count("core/namespaces/"):
        await first_objects(objects)
    access = open_access(folder / "access", (), datetime.now(UTC))
    server = ApiServer(objects, access, options, runtime=runtime)
    await server.start()
    write_kubeconfig(folder / "kubeconfig", server.url, access.authority, access.admin_token)
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=access.authority.decode()), limit=0)
    session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
    try:
        yield LocalServer(server, objects, store, access, folder, session)
    finally:
        await session.close()
        await server.stop()
        await store.close()


async def _main(folder: Path) -> None:
    async with local_server(folder, memory=False, options=ServerOptions(port=0)) as server:
        print(f"export KUBECONFIG={server.kubeconfig}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        try:
            asyncio.run(_main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary)))
        except KeyboardInterrupt:
            pass
