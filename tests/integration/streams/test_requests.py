"""Logs, evictions, and everything that is answered before a connection is upgraded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sandpool.controlplane.apiserver.limits import Limits, StreamLimits
from sandpool.controlplane.apiserver.server import ServerOptions
from sandpool.model.metadata import Uid
from support.node.streaming import PODS, SOCKET, Stage, eventually, query, spdy_headers, stage, upgraded, websocket

ENDED = {"terminated": {"exitCode": 1, "reason": "Error"}}


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as made:
        yield made


async def refusal(box: Stage, method: str, path: str, headers: list[tuple[str, str]]) -> Any:
    answer = await box.server.request(method, f"{PODS}/{path}", headers=dict(headers))
    return answer.status, answer.json["reason"], answer.json["message"]


EXEC = "exec?" + query("true", stdout=True)


REFUSED = [
    (f"nosuch/{EXEC}", 404, 'pods "nosuch" not found'),
    (f"two/{EXEC}", 400, "a container name must be specified for pod two, choose one of: [a b]"),
    (f"two/{EXEC}&container=c", 400, "container c is not valid for pod two"),
    (f"new/{EXEC}", 400, 'cannot exec into container "main" in pod "new": it is waiting to start: ErrImagePull'),
    (f"done/{EXEC}", 400, "cannot exec into a container in a completed pod; current phase is Failed"),
    ("done/portforward", 400, "cannot forward to a container in a completed pod; current phase is Failed"),
    ("new/attach", 400, 'cannot attach to container "main" in pod "new": it is waiting to start: ErrImagePull'),
    ("box/exec?command=true", 400, "you must specify at least 1 of stdin, stdout, stderr"),
    (f"unbound/{EXEC}", 400, "pod unbound does not have a host assigned"),
]


async def test_refusals_come_as_a_status_before_the_upgrade(box: Stage) -> None:
    await box.pod()
    await box.pod("two", containers=("a", "b"))
    await box.pod("new", states={"main": {"waiting": {"reason": "ErrImagePull"}}}, phase="Pending")
    await box.pod("done", states={"main": ENDED}, phase="Failed")
    await box.pod("unbound", node_name="", states={"main": {}}, phase="Pending")
    for path, status, words in REFUSED:
        for method, headers in (("GET", SOCKET), ("POST", spdy_headers())):
            assert (await refusal(box, method, path, headers))[::2] == (status, words), path


async def test_upgrades_that_cannot_be_had(box: Stage) -> None:
    await box.pod()
    path = f"box/{EXEC}"
    assert await refusal(box, "GET", path, []) == (400, "BadRequest", "Upgrade request required")
    chat = [*SOCKET, ("Sec-WebSocket-Protocol", "chat")]
    status, reason, words = await refusal(box, "GET", path, chat)
    assert (status, reason) == (403, "Forbidden")
    assert "client supports [chat], server accepts [v5.channel.k8s.io" in words
    assert not box.node.execs


async def test_tokens_of_another_namespace(box: Stage) -> None:
    await box.pod()
    token = await box.server.request(
        "POST",
        "/api/v1/namespaces/kube-public/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )
    for path in (f"box/{EXEC}", "box/portforward", "box/attach"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with websocket(box, path, "v5.channel.k8s.io", token=token.json["status"]["token"]):
                pass
        assert refused.value.status == 403
    answer = await box.server.request("GET", f"{PODS}/box/log", token=token.json["status"]["token"])
    assert answer.status == 403
    assert 'cannot get resource "pods/log"' in answer.json["message"]
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with websocket(box, f"box/{EXEC}", token="nonsense"):
            pass
    assert refused.value.status == 401


# Connections that ask for an upgrade and do not get one.


async def test_an_upgrade_that_nobody_wants_is_a_plain_request(box: Stage) -> None:
    await box.pod()
    h2c = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABkAAQAAP__")]
    async with upgraded(box, "GET", "box", h2c) as raw:
        assert raw.head.startswith("HTTP/1.1 200 ")
        await raw.reader.readuntil(b'"Running"')
        await raw.write(plain_request(box))
        await raw.reader.readuntil(b"HTTP/1.1 200 OK")


def plain_request(box: Stage) -> bytes:
    return f"GET {PODS}/box HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {box.server.token}\r\n\r\n".encode()


async def test_what_comes_with_a_refused_upgrade_is_no_request(box: Stage) -> None:
    await box.pod()
    server = box.server
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port, ssl=server.tls())
    head = plain_request(box).replace(b"Host: x\r\n", b"Host: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n")
    writer.write(head + plain_request(box))
    got = await reader.read()
    assert got.count(b"HTTP/1.1 200 OK") == 1
    writer.close()


async def test_bytes_that_come_with_the_request_are_not_lost(box: Stage) -> None:
    await box.pod()
    early = bytes((0x82, 0x86, 0, 0, 0, 0)) + b"\0hello"
    path = "box/exec?" + query("head", "-c", "5", stdin=True, stdout=True)
    lines = [f"GET {PODS}/{path} HTTP/1.1", "Host: x", f"Authorization: Bearer {box.server.token}"]
    lines += [f"{name}: {value}" for name, value in SOCKET]
    server = box.server
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port, ssl=server.tls())
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + early)
    assert b"101 Switching Protocols" in await reader.readuntil(b"hello")
    writer.transport.abort()


# Logs.


async def log(box: Stage, options: str = "", name: str = "box") -> tuple[int, bytes]:
    answer = await box.server.request("GET", f"{PODS}/{name}/log?{options}")
    return answer.status, answer.body


async def test_logs(box: Stage) -> None:
    uid = await box.pod(script="echo one; echo two; echo three; exit 1", last=ENDED)
    await box.node.ended(uid)
    assert await log(box) == (200, b"one\ntwo\nthree\n")
    assert await log(box, "tailLines=1") == (200, b"three\n")
    assert await log(box, "limitBytes=4") == (200, b"one\n")
    await log(box, "timestamps=true&sinceTime=2026-01-01T00:00:00Z&tailLines=7&limitBytes=9")
    asked = box.node.asked
    assert (asked["tail"], asked["limit"], asked["timestamps"]) == (7, 9, True)
    assert asked["since"].isoformat() == "2026-01-01T00:00:00+00:00"
    status, body = await log(box, "previous=true")  # the status promises one that the node does not have
    assert (status, b"previous" in body) == (400, True)
    await box.node.backend.restart_container(Uid(uid), "main")
    await box.node.until(uid, lambda running: running.containers[0].restarts == 1)
    assert await log(box, "previous=true") == (200, b"one\ntwo\nthree\n")


async def test_logs_that_cannot_be_shown(box: Stage) -> None:
    await box.pod("new", states={"main": {"waiting": {"reason": "ContainerCreating"}}}, phase="Pending")
    status, body = await log(box, name="new")
    assert status == 400
    assert b'container \\"main\\" in pod \\"new\\" is waiting to start: ContainerCreating' in body
    await box.pod("lost", states={"main": ENDED}, phase="Failed")  # the node has nothing of it
    status, body = await log(box, name="lost")
    assert (status, b"does not run here" in body) == (404, True)
    assert (await log(box, "tailLines=-1", name="new"))[0] == 422


async def follow(box: Stage, name: str = "box") -> aiohttp.ClientResponse:
    return await box.server.session.get(
        f"{box.server.url}{PODS}/{name}/log?follow=true", headers={"Authorization": f"Bearer {box.server.token}"}
    )


async def test_following_a_log(box: Stage) -> None:
    await box.pod(script="while read line; do echo $line; done")
    path = "box/attach?" + query(stdin=True)
    async with websocket(box, path, "v5.channel.k8s.io") as socket:
        response = await follow(box)
        assert (response.status, response.headers["content-type"]) == (200, "text/plain")
        for word in (b"one\n", b"two\n"):
            await socket.send_bytes(b"\0" + word)
            assert await response.content.readline() == word
        await socket.send_bytes(b"\xff\0")
        assert await response.content.read() == b""  # the container has ended
        response.close()


async def test_a_reader_that_leaves_is_noticed_in_silence(box: Stage) -> None:
    await box.pod(script="echo hello; sleep 600")
    response = await follow(box)
    assert await response.content.readline() == b"hello\n"
    assert len(box.server.server.state.tasks) == 1
    response.close()
    await eventually(lambda: not box.server.server.state.tasks)


async def test_a_log_that_says_nothing_begins_all_the_same(tmp_path: Path) -> None:
    async with stage(tmp_path, StreamLimits(first_line=0.05)) as box:
        await box.pod()
        response = await follow(box)
        assert response.status == 200
        response.close()


async def test_a_reader_may_take_its_time(tmp_path: Path) -> None:
    """The limit on answers that are left unread does not hold for logs: `kubectl logs | less`."""
    size = 9_000_000
    options = ServerOptions(limits=Limits(stalled=0.2))
    async with stage(tmp_path, options=options) as box:
        line = "x" * 999
        await box.node.ended(await box.pod(script=f"yes {line} | head -c {size}"))
        async with upgraded(box, "GET", "box/log", [("Connection", "close")], narrow=True) as raw:
            connections = box.server.server.state.connections
            await eventually(lambda: any(connection.flow.write_paused for connection in connections))
            await asyncio.sleep(0.5)  # longer than the limit; nothing tells that it was not applied
            total = 0
            while data := await raw.read():
                total += data.count(b"x")
    assert total == size // 1000 * 999


async def test_eviction_deletes(box: Stage) -> None:
    await box.pod()
    path = f"{PODS}/box/eviction"
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "box"}}
    wrong = await box.server.request("POST", path, {**body, "metadata": {"name": "other"}})
    assert wrong.status == 400
    stale = await box.server.request("POST", path, {**body, "deleteOptions": {"preconditions": {"uid": "other"}}})
    assert stale.status == 409
    tried = await box.server.request("POST", path, {**body, "deleteOptions": {"dryRun": ["All"]}})
    assert tried.status == 201
    shown = await box.server.request("GET", f"{PODS}/box")
    assert "deletionTimestamp" not in shown.json["metadata"]
    answer = await box.server.request("POST", path, {**body, "deleteOptions": {"gracePeriodSeconds": 0}})
    assert (answer.status, answer.json["status"]) == (201, "Success")
    assert (await box.server.request("GET", f"{PODS}/box")).status == 404
