"""The small client of an API server against scripted ones: credentials, patience, pages, watches, TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from sandpool.base.secret import Secret
from sandpool.kube.config import Cluster as ApiServer
from sandpool.kube.config import Exec, InteractiveMode, Pem, User
from sandpool.kube.errors import (
    Conflict,
    Gone,
    NotFound,
    Refused,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    Unreadable,
    Untrusted,
)
from sandpool.sdk._async.cluster import Cluster
from sandpool.sdk._sync.cluster import Cluster as BlockingCluster
from sandpool.sdk.config import Resolved
from sandpool.sdk.credentials import Credentials
from sandpool.sdk.errors import TooLarge
from sandpool.sdk.watch_lines import WatchLines
from support.kube.certificates import Authority
from support.network.scripted_peer import Act, answer, cut, drop, forever, scripted_peer, stream


def client(url: str, user: User = User(), ca: str = "", kind: Any = Cluster) -> Any:
    resolved = Resolved(ApiServer(server=url, ca=ca), user, "default", "", True, "", "", "the test")
    return kind(resolved, Credentials(user, {}))


def event(kind: str, revision: int, **more: Any) -> bytes:
    metadata = {"name": "a", "resourceVersion": str(revision), **more}
    return json.dumps({"type": kind, "object": {"metadata": metadata}}).encode() + b"\n"


def status(code: int, reason: str, **more: Any) -> Act:
    return answer({"kind": "Status", "code": code, "reason": reason, "message": reason, **more}, code)


async def test_verbs() -> None:
    async with scripted_peer(forever(answer({"kind": "X"}))) as peer:
        cluster = client(peer.url, User(token=Secret("t")))
        await cluster.get("/a")
        await cluster.create("/a", {"x": 1})
        await cluster.patch("/a", {"x": 1})
        await cluster.patch("/a", [{"op": "test"}])
        await cluster.delete("/a", uid="u", propagation="Foreground", grace=0)
        await cluster.get("/a", as_table=True)
        await cluster.close()
    assert [one.method for one in peer.seen] == ["GET", "POST", "PATCH", "PATCH", "DELETE", "GET"]
    assert {one.headers["Authorization"] for one in peer.seen} == {"Bearer t"}
    assert [one.headers.get("Content-Type") for one in peer.seen[:4]] == [
        None, "application/json", "application/merge-patch+json", "application/json-patch+json",
    ]  # fmt: skip
    assert peer.seen[4].json["preconditions"] == {"uid": "u"}
    assert peer.seen[4].json["propagationPolicy"] == "Foreground"
    assert "as=Table" in peer.seen[5].headers["Accept"]
    assert {one.connection for one in peer.seen} == {0}


async def test_pages_are_joined() -> None:
    pages = [{"items": [1, 2], "metadata": {"continue": "next"}}, {"items": [3], "metadata": {}}]
    async with scripted_peer(*(answer(page) for page in pages)) as peer:
        cluster = client(peer.url)
        assert (await cluster.list("/a", labels="x=y,z"))["items"] == [1, 2, 3]
        await cluster.close()
    assert [one.query.get("continue") for one in peer.seen] == [None, "next"]
    assert {one.query["labelSelector"] for one in peer.seen} == {"x=y,z"}


async def test_a_list_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandpool.sdk._async.cluster.MOST_ITEMS", 5)
    page = {"items": [1, 2], "metadata": {"continue": "next"}}
    async with scripted_peer(*(answer(page) for _ in range(9))) as peer:
        cluster = client(peer.url)
        with pytest.raises(TooLarge, match="selector"):
            await cluster.list("/a")
        await cluster.close()
    assert len(peer.seen) == 3


async def test_a_list_of_nothing_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandpool.sdk._async.cluster.MOST_EMPTY", 5)
    page = {"items": [], "metadata": {"continue": "next"}}
    async with scripted_peer(*(answer(page) for _ in range(9))) as peer:
        cluster = client(peer.url)
        with pytest.raises(Unreadable, match="API server"):
            await cluster.list("/a")
        await cluster.close()
    assert len(peer.seen) == 6


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "ADDED", "object": {"x": [' + b"[]," * 600_000 + b"[]]}}\n",
        b'{"type": "ADDED", "object": {"x": ' + b"[" * 100_000 + b"}}\n",
        b'{"type": "ADDED", "object": {"metadata": []}}\n',
        b" " * (17 << 20) + b"\n",
    ],
    ids=["many", "deep", "wrong", "long"],
)
def test_words_of_a_watch_that_are_none(line: bytes) -> None:
    with pytest.raises((Unreadable, TooLarge)):
        WatchLines().feed(line)


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (answer(b"[" * 60_000, 404), NotFound),
        (answer(b'{"items": [' + b"[]," * 2_100_000 + b"[]]}"), TooLarge),
        (status(404, "NotFound"), NotFound),
        (status(409, "Conflict"), Conflict),
        (status(410, "Expired"), Gone),
        (answer(b"<html>", 404), NotFound),
        (drop(), Unreachable),
        (cut(b"{", 10), Unreachable),
    ],
)
async def test_what_a_server_says_instead(act: Act, error: type[Exception]) -> None:
    async with scripted_peer(act) as peer:
        cluster = client(peer.url)
        with pytest.raises(error):
            await cluster.create("/a", {})
        await cluster.close()
    assert len(peer.seen) == 1


async def test_a_busy_server_is_asked_again_when_it_says() -> None:
    busy = answer({"reason": "TooManyRequests"}, 429, {"Retry-After": "0"})
    async with scripted_peer(busy, answer({"kind": "X"})) as peer:
        cluster = client(peer.url)
        assert await cluster.create("/a", {}) == {"kind": "X"}
        await cluster.close()
    async with scripted_peer(answer({"reason": "TooManyRequests"}, 429, {"Retry-After": "3600"})) as peer:
        cluster = client(peer.url)
        with pytest.raises(TooManyRequests):
            await cluster.create("/a", {})
        await cluster.close()
    assert len(peer.seen) == 1


@pytest.mark.parametrize("kind", [Cluster, BlockingCluster])
async def test_a_token_file_is_read_again_after_a_refusal(tmp_path: Path, kind: Any) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    refuse = status(401, "Unauthorized")
    async with scripted_peer(answer({}), refuse, answer({"kind": "X"}), refuse, refuse) as peer:
        cluster = client(peer.url, User(token_file=file), kind=kind)

        async def get() -> Any:
            if kind is Cluster:
                return await cluster.get("/a")
            return await asyncio.to_thread(cluster.get, "/a")

        await get()
        file.write_text("new")
        assert await get() == {"kind": "X"}
        with pytest.raises(Unauthorized):  # and only once
            await get()
        await get_closed(cluster)
    tokens = [one.headers["Authorization"] for one in peer.seen]
    assert tokens == ["Bearer old", "Bearer old", "Bearer new", "Bearer new"]


async def get_closed(cluster: Any) -> None:
    if (waiting := cluster.close()) is not None:
        await waiting


async def test_a_plugin_is_asked_once_and_again_after_a_refusal(tmp_path: Path) -> None:
    plugin, count = tmp_path / "plugin", tmp_path / "count"
    plugin.write_text(
        f"#!{sys.executable}\nimport json, pathlib\ncount = pathlib.Path({str(count)!r})\n"
        "n = int(count.read_text()) + 1 if count.exists() else 1\ncount.write_text(str(n))\n"
        "print(json.dumps({'kind': 'ExecCredential', 'apiVersion': 'client.authentication.k8s.io/v1',"
        " 'status': {'token': f't{n}'}}))\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    spec = Exec("client.authentication.k8s.io/v1", str(plugin), interactive=InteractiveMode.NEVER)
    acts = answer({}), answer({}), status(401, "Unauthorized"), answer({"kind": "X"})
    async with scripted_peer(*acts) as peer:
        cluster = client(peer.url, User(exec=spec))
        for _ in range(3):
            await cluster.get("/a")
        await cluster.close()
    tokens = [one.headers["Authorization"] for one in peer.seen]
    assert tokens == ["Bearer t1", "Bearer t1", "Bearer t1", "Bearer t2"]


async def test_a_watch_goes_on_where_it_was_cut_off() -> None:
    first, second = event("ADDED", 5), event("MODIFIED", 7)
    acts = stream(first[:20], first[20:], broken=True), stream(event("BOOKMARK", 6)), stream(second)
    async with scripted_peer(*acts) as peer:
        cluster = client(peer.url)
        found = []
        async with cluster.watch("/a", fields="metadata.name=a", since="4", timeout=30) as events:
            async for one in events:
                found.append((one.type, one.revision))
                if len(found) == 2:
                    break
        await cluster.close()
    assert found == [("ADDED", "5"), ("MODIFIED", "7")]
    assert [one.query["resourceVersion"] for one in peer.seen] == ["4", "5", "6"]
    assert {one.query["fieldSelector"] for one in peer.seen} == {"metadata.name=a"}


@pytest.mark.parametrize("late", [True, False])
async def test_a_watch_whose_past_is_forgotten(late: bool) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    line = json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"
    async with scripted_peer(stream(line) if late else answer(gone, 410)) as peer:
        cluster = client(peer.url)
        with pytest.raises(Gone, match="too old"):
            async with cluster.watch("/a", since="1", timeout=30) as events:
                _ = [one async for one in events]
        await cluster.close()


async def test_a_watch_ends_when_its_time_is_up() -> None:
    hold = asyncio.Event()
    async with scripted_peer(forever(stream(hold=hold))) as peer:
        cluster = client(peer.url)
        async with cluster.watch("/a", timeout=0.2) as events:
            assert [one async for one in events] == []
        await cluster.close()
        hold.set()


@pytest.mark.parametrize("kind", [Cluster, BlockingCluster])
async def test_tls(tmp_path: Path, kind: Any) -> None:
    trusted, stranger = Authority("trusted"), Authority("stranger")
    trusted.write_server(tmp_path / "server", names=[], addresses=["127.0.0.1"])
    trusted.write_client(tmp_path / "client", "me")
    for authority, name in ((trusted, "ca"), (stranger, "other")):
        authority.write_ca(tmp_path / name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    context.load_verify_locations(tmp_path / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    user = User(certificate=Pem(file=tmp_path / "client.crt"), key=Pem(file=tmp_path / "client.key"))

    async def get(cluster: Any) -> Any:
        try:
            return await cluster.get("/a") if kind is Cluster else await asyncio.to_thread(cluster.get, "/a")
        finally:
            await get_closed(cluster)

    async with scripted_peer(forever(answer({"kind": "X", "long": "x" * 300_000})), tls=context) as peer:
        ca = (tmp_path / "ca.crt").read_text()
        assert (await get(client(peer.url, user, ca, kind)))["kind"] == "X"
        with pytest.raises(Untrusted, match="not trusted"):
            await get(client(peer.url, user, (tmp_path / "other.crt").read_text(), kind))
        with pytest.raises(Unreachable):  # without a certificate
            await get(client(peer.url, User(), ca, kind))
        with pytest.raises(Refused):  # it speaks no TLS
            await get(client(peer.url.replace("https", "http").replace("127.0.0.1", "127.0.0.2"), user, ca, kind))
    assert len(peer.seen) == 1


async def test_a_server_that_speaks_no_tls() -> None:
    async with scripted_peer(answer({})) as peer:
        with pytest.raises(Refused):
            await client(peer.url.replace("http:", "https:")).get("/a")
