"""Into a cluster through its API server: which pod, and bytes over the channels of a port-forward."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from aiohttp import web

from sandpool.kube.config import Cluster as ApiServer
from sandpool.kube.config import User
from sandpool.kube.errors import Unreachable
from sandpool.sdk._async import tunnel
from sandpool.sdk._async.connection import AsyncConnection
from sandpool.sdk._async.tunnel import chosen_pod, selector_of
from sandpool.sdk._async.websocket import WebSocket
from sandpool.sdk._sync.connection import Connection
from sandpool.sdk.config import Resolved
from sandpool.sdk.errors import NotConfigured
from support.network.scripted_peer import Act, Peer, answer, scripted_peer

SERVICE = {"spec": {"selector": {"app": "router"}, "ports": [{"port": 8080, "targetPort": "http"}]}}
GREETING = (8000).to_bytes(2, "little")


def pod(name: str = "router-1", phase: str = "Running", ready: str = "True", **metadata: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"ports": [{"name": "http", "containerPort": 8000}]}]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    }


@pytest.mark.parametrize(
    ("service", "pods", "found"),
    [
        (SERVICE, [pod()], ("router-1", 8000)),
        (SERVICE, [pod("a", phase="Pending"), pod("b", ready="False"), pod("c", deletionTimestamp="x"), pod("d")], ("d", 8000)),
        (SERVICE, [], None),
        ({"spec": {"ports": [{"port": 8080}]}}, [pod()], ("router-1", 8080)),
        ({"spec": {"ports": [{"port": 1, "targetPort": 2}, {"port": 8080, "targetPort": 3}]}}, [pod()], ("router-1", 3)),
        ({"spec": {"ports": [{"port": 9, "targetPort": "absent"}]}}, [pod()], None),
    ],
)  # fmt: skip
def test_which_pod(service: Any, pods: Any, found: Any) -> None:
    assert chosen_pod(service, pods) == found


def test_a_service_without_a_selector_selects_nothing() -> None:
    assert selector_of(SERVICE) == "app=router"
    assert selector_of({"spec": {}}) != ""


def forward(talk: Callable[[web.WebSocketResponse], Awaitable[None]]) -> Act:
    async def act(request: web.Request) -> web.StreamResponse:
        line = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await line.prepare(request)
        await line.send_bytes(b"\0" + GREETING)
        await line.send_bytes(b"\1" + GREETING)
        await talk(line)
        return line

    return act


async def echoing(line: web.WebSocketResponse) -> None:
    """An HTTP server that says how long each body was, in pieces with a ping between them."""
    held = b""
    async for message in line:
        assert message.data[:1] == b"\0"
        held += message.data[1:]
        while b"\r\n\r\n" in held:
            head, _, rest = held.partition(b"\r\n\r\n")
            rows = [row for row in head.lower().split(b"\r\n") if row.startswith(b"content-length:")]
            size = int(rows[0][15:]) if rows else 0
            if len(rest) < size:
                break
            held = rest[size:]
            await line.send_bytes(b"\0HTTP/1.1 200 OK\r\nContent-Le")
            await line.ping()
            body = str(size).encode()
            await line.send_bytes(b"\0ngth: %d\r\n\r\n" % len(body) + body)


def resolved(peer: Peer) -> Resolved:
    return Resolved(ApiServer(server=peer.url), User(), "default", "", True, "do something", "", "the test")


async def asked(peer: Peer, kind: Any, *bodies: bytes) -> list[bytes]:
    """What the router behind the tunnel says to a request with each of these bodies."""
    if kind is AsyncConnection:
        async with AsyncConnection(resolved=resolved(peer)) as connection:
            http = await connection.router()
            return [(await http.request("POST", "/", body=body, timeout=20)).body for body in bodies]

    def work() -> list[bytes]:
        with Connection(resolved=resolved(peer)) as connection:
            http = connection.router()
            return [http.request("POST", "/", body=body, timeout=20).body for body in bodies]

    return await asyncio.to_thread(work)


both = pytest.mark.parametrize("kind", [AsyncConnection, Connection])
found = answer(SERVICE), answer({"items": [pod()]})


@both
async def test_requests_through_a_tunnel(kind: Any) -> None:
    async with scripted_peer(*found, forward(echoing)) as peer:
        assert await asked(peer, kind, b"", b"x" * 10, b"y" * 3_000_000) == [b"0", b"10", b"3000000"]
    assert [one.path.rpartition("/")[2] for one in peer.seen] == ["sandbox-router-svc", "pods", "portforward"]
    assert peer.seen[1].query["labelSelector"] == "app=router"
    assert peer.seen[2].query["ports"] == "8000"


@both
@pytest.mark.parametrize(
    ("acts", "message"),
    [
        ([answer({"reason": "NotFound"}, 404)], "there is no service"),
        ([answer({"reason": "Forbidden", "message": "not you"}, 403)], "not you"),
        ([answer(SERVICE), answer({"items": []})], "no pod of service"),
        ([*found, answer({"reason": "Forbidden"}, 403)], "was refused \\(403\\)"),
    ],
    ids=["no-service", "forbidden", "no-pod", "no-forward"],
)
async def test_no_way_in(kind: Any, acts: list[Act], message: str) -> None:
    async with scripted_peer(*acts) as peer:
        with pytest.raises(NotConfigured, match=f"{message}.*do something"):
            await asked(peer, kind, b"")


@both
async def test_nobody_listens_in_the_pod(kind: Any) -> None:
    async def failing(line: web.WebSocketResponse) -> None:
        await line.send_bytes(b"\1connection refused")

    async with scripted_peer(*found, forward(failing)) as peer:
        with pytest.raises(Unreachable, match="connection refused"):
            await asked(peer, kind, b"")


@both
async def test_a_channel_that_nobody_asked_for(kind: Any) -> None:
    async def straying(line: web.WebSocketResponse) -> None:
        await line.send_bytes(b"\7hello")
        await line.receive()

    async with scripted_peer(*found, forward(straying)) as peer:
        with pytest.raises(Unreachable, match="an unknown channel"):
            await asked(peer, kind, b"")


class Flooding:
    """The other end of a tunnel, which sends without end while something is sent to it."""

    def __init__(self) -> None:
        self.asked = 0

    async def send(self, data: bytes, timeout: float | None = None) -> None: ...

    async def received(self) -> list[bytes | None]:
        self.asked += 1
        return [b"\0" + bytes(1 << 18)]


async def test_what_arrives_while_something_is_sent_is_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten gigabytes of input could be answered with as much output, all of it held in memory."""
    monkeypatch.setattr(tunnel, "STASH", 1 << 20)
    flooding = Flooding()
    line = tunnel.Tunnel(cast("WebSocket", flooding), "pod")
    await line.write(bytes(1 << 24))
    assert flooding.asked <= 5
