"""Watches over a real socket: order, resumption, forms, bookmarks, ends, slow clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.server import ServerOptions
from sandpool.model.kinds import CONFIG_MAPS
from sandpool.model.patches import merge_patch
from support.api.local_server import LocalServer, local_server

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"}
MERGE = "application/merge-patch+json"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LocalServer]:
    async with local_server(tmp_path) as server:
        yield server


class Lines:
    """The events of one watch, as they come."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(10):
            line = await self.response.content.readline()
        assert line.strip(), "the stream ended, or held a blank line"
        event: dict[str, Any] = msgspec.json.decode(line)
        return event

    async def end(self) -> bytes:
        async with asyncio.timeout(10):
            return await self.response.content.read()


@asynccontextmanager
async def watching(server: LocalServer, query: str = "", headers: dict[str, str] | None = None) -> AsyncIterator[Lines]:
    sent = {"Authorization": f"Bearer {server.token}", "Accept": "application/json"} | (headers or {})
    async with server.session.get(f"{server.url}{MAPS}?watch=true&{query}", headers=sent) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "application/json"
        yield Lines(response)


async def create(server: LocalServer, name: str, **labels: str) -> dict[str, Any]:
    answer = await server.request("POST", MAPS, {"metadata": {"name": name, "labels": labels}})
    assert answer.status == 201
    made: dict[str, Any] = answer.json
    return made


def seen(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


async def test_the_present_then_every_change_in_order(server: LocalServer) -> None:
    await create(server, "a")
    async with watching(server) as lines:
        assert seen(await lines.next()) == ("ADDED", "a")
        await create(server, "b")
        await server.request("PATCH", f"{MAPS}/b", {"data": {"k": "v"}}, MERGE)
        await server.request("DELETE", f"{MAPS}/a")
        assert [seen(await lines.next()) for _ in range(3)] == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]


async def test_from_a_revision_nothing_is_missed(server: LocalServer) -> None:
    made = await create(server, "a")
    await create(server, "b")
    async with watching(server, f"resourceVersion={made['metadata']['resourceVersion']}") as lines:
        assert seen(await lines.next()) == ("ADDED", "b")


async def test_selectors(server: LocalServer) -> None:
    async with (
        watching(server, "labelSelector=x%3D1&resourceVersion=0") as labelled,
        watching(server, "fieldSelector=metadata.name%3Db") as named,
    ):
        await create(server, "a", x="2")
        await create(server, "b", x="1")
        assert seen(await labelled.next()) == ("ADDED", "b")
        assert seen(await named.next()) == ("ADDED", "b")
        await server.request("PATCH", f"{MAPS}/b", {"metadata": {"labels": {"x": "2"}}}, MERGE)
        assert seen(await labelled.next()) == ("DELETED", "b")
        assert seen(await named.next()) == ("MODIFIED", "b")


async def test_timeout_ends_it_cleanly(server: LocalServer) -> None:
    async with watching(server, "timeoutSeconds=1") as lines:
        assert await lines.end() == b""


async def test_a_streaming_list_ends_with_a_bookmark(server: LocalServer) -> None:
    await create(server, "a")
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with watching(server, query) as lines:
        assert seen(await lines.next()) == ("ADDED", "a")
        bookmark = await lines.next()
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "ConfigMap"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_bookmarks_follow_what_was_not_for_this_watcher(tmp_path: Path) -> None:
    options = ServerOptions(limits=Limits(bookmark_every=0.05))
    query = "allowWatchBookmarks=true&labelSelector=x"
    async with local_server(tmp_path, options=options) as server, watching(server, query) as lines:
        made = await create(server, "unseen")
        revision = 0
        while revision < int(made["metadata"]["resourceVersion"]):
            event = await lines.next()
            assert event["type"] == "BOOKMARK"
            revision = int(event["object"]["metadata"]["resourceVersion"])


async def test_tables(server: LocalServer) -> None:
    await create(server, "a")
    async with watching(server, headers=TABLE) as lines:
        first = await lines.next()
        await create(server, "b")
        second = await lines.next()
    assert [event["object"]["rows"][0]["cells"][0] for event in (first, second)] == ["a", "b"]
    assert first["object"]["columnDefinitions"][0]["name"] == "Name"
    assert second["object"]["columnDefinitions"] is None


async def outgrow(server: LocalServer) -> None:
    """Writes until the store has forgotten how it began."""
    turn = 0
    while server.store.oldest <= 2:
        batch = [merge_patch({"data": {"turn": str(turn + index)}}) for index in range(500)]
        await asyncio.gather(*(server.objects.patch(CONFIG_MAPS, "default", "a", patch) for patch in batch))
        turn += 500


async def test_a_revision_that_is_forgotten(tmp_path: Path) -> None:
    """200 with an ERROR event that has the keys which clients index."""
    async with local_server(tmp_path, window=500) as server:
        await create(server, "a")
        await outgrow(server)
        async with watching(server, "resourceVersion=2") as lines:
            event = await lines.next()
            assert event["type"] == "ERROR"
            assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
            assert event["object"]["message"].startswith("too old resource version: 2")
            assert await lines.end() == b""


async def test_bad_queries_are_plain_errors(server: LocalServer) -> None:
    for query in ("labelSelector=%3D%3D", "fieldSelector=spec.x%3D1", "resourceVersion=abc", "timeoutSeconds=x"):
        answer = await server.request("GET", f"{MAPS}?watch=1&{query}")
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest"), query


async def test_no_more_watches_than_the_limit(tmp_path: Path) -> None:
    async with local_server(tmp_path, options=ServerOptions(limits=Limits(watches=1))) as server:
        async with watching(server):
            answer = await server.request("GET", f"{MAPS}?watch=1")
            assert (answer.status, answer.json["reason"]) == (429, "TooManyRequests")
            assert answer.headers["Retry-After"] == "1"
            assert (await server.request("GET", MAPS)).status == 200
        async with asyncio.timeout(10):
            while (await server.request("GET", f"{MAPS}?watch=1&timeoutSeconds=1")).status != 200:
                await asyncio.sleep(0)  # the server learns of the closed connection in its own time


async def test_the_server_ends_watches_when_it_stops(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server, watching(server) as lines:
        await create(server, "a")
        assert seen(await lines.next()) == ("ADDED", "a")
        await server.server.stop()
        assert await lines.end() == b""


async def test_who_leaves_is_forgotten(server: LocalServer) -> None:
    async with watching(server):
        assert _watches(await server.request("GET", "/metrics")) == 1
    async with asyncio.timeout(10):
        while _watches(await server.request("GET", "/metrics")):
            await asyncio.sleep(0)


async def test_who_does_not_read_is_cut_off_and_holds_nobody_up(tmp_path: Path) -> None:
    limits = Limits(stalled=0.5)
    async with local_server(tmp_path, options=ServerOptions(limits=limits)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port, ssl=server.tls(), limit=1024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        request = f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n"
        writer.write(request.encode())
        async with asyncio.timeout(10):
            while _watches(await server.request("GET", "/metrics")) == 0:
                await asyncio.sleep(0)
        async with watching(server) as quick:
            for turn in range(40):  # far more than sockets buffer
                body = {"metadata": {"name": f"m{turn}"}, "data": {"k": "x" * 500_000}}
                await server.objects.create(CONFIG_MAPS, "default", body)
                assert seen(await quick.next()) == ("ADDED", f"m{turn}")
            async with asyncio.timeout(10):
                while _watches(await server.request("GET", "/metrics")) > 1:
                    await asyncio.sleep(0.01)
        writer.transport.abort()
        del reader


def _watches(metrics: Any) -> int:
    for line in metrics.body.decode().splitlines():
        if line.startswith('sandpool_apiserver_watches{resource="configmaps"}'):
            return int(float(line.rpartition(" ")[2]))
    return 0
