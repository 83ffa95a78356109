"""What the SDK does with a sandbox, straight onto a boxd: without a cluster and without a router.

Each test is written once, with await. `Threaded` lets it use the synchronous half too: every call runs in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sandpool.sdk._async import data_plane, files, http, processes
from sandpool.sdk._sync import data_plane as sync_data_plane
from sandpool.sdk._sync import files as sync_files
from sandpool.sdk._sync import http as sync_http
from sandpool.sdk._sync import processes as sync_processes
from sandpool.sdk.origin import Origin
from support.network.boxd_daemon import TOKEN

PROOF = (("Authorization", f"Bearer {TOKEN}"),)


class _Way:
    def __init__(self, port: int) -> None:
        self.http = http.Http(Origin("http", "127.0.0.1", port))

    async def router(self) -> http.Http:
        return self.http

    async def bearer(self) -> http.Headers:
        return PROOF

    async def renew(self, used: http.Headers) -> bool:
        return False


class _SyncWay:
    def __init__(self, port: int) -> None:
        self.http = sync_http.Http(Origin("http", "127.0.0.1", port))

    def router(self) -> sync_http.Http:
        return self.http

    def bearer(self) -> sync_http.Headers:
        return PROOF

    def renew(self, used: sync_http.Headers) -> bool:
        return False


class AsyncBox(processes.AsyncCommands):
    def __init__(self, port: int, env: dict[str, str] | None = None) -> None:
        self.way = _Way(port)
        self._plane = data_plane.DataPlane(self.way, "default", "box")
        self._env = env or {}
        self.files = files.AsyncFiles(self._plane)


class SyncBox(sync_processes.Commands):
    def __init__(self, port: int, env: dict[str, str] | None = None) -> None:
        self.way = _SyncWay(port)
        self._plane = sync_data_plane.DataPlane(self.way, "default", "box")
        self._env = env or {}
        self.files = sync_files.Files(self._plane)


_NOT_AWAITED = {"stream", "watch", "open"}


class Threaded:
    """Something synchronous, used as its asynchronous twin is."""

    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._thing, name)
        if name in _NOT_AWAITED:
            return lambda *args, **options: Threaded(found(*args, **options))
        if not callable(found):
            return _wrapped(found)

        async def call(*args: Any, **options: Any) -> Any:
            return _wrapped(await asyncio.to_thread(found, *args, **options))

        return call

    def __aiter__(self) -> AsyncIterator[Any]:
        return _each(iter(self._thing))

    async def __aenter__(self) -> Any:
        return _wrapped(await asyncio.to_thread(self._thing.__enter__))

    async def __aexit__(self, *error: Any) -> Any:
        return await asyncio.to_thread(self._thing.__exit__, *error)


async def _each(iterator: Any) -> AsyncIterator[Any]:
    end = object()
    while (item := await asyncio.to_thread(next, iterator, end)) is not end:
        yield item


def _wrapped(value: Any) -> Any:
    """Handles are wrapped, values are not."""
    own = type(value).__module__.startswith("sandpool.sdk._sync")
    return Threaded(value) if own else value


@asynccontextmanager
async def a_box(kind: str, port: int, env: dict[str, str] | None = None) -> AsyncIterator[Any]:
    """`kind` is async or sync."""
    box = AsyncBox(port, env) if kind == "async" else SyncBox(port, env)
    try:
        yield box if kind == "async" else Threaded(box)
    finally:
        if isinstance(box, AsyncBox):
            await box.way.http.close()
        else:
            box.way.http.close()
