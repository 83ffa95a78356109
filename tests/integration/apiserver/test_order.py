"""The order of news: whoever makes a claim is answered before anybody hears that it is Ready, and nobody waits for a client that does not read."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sandpool.controlplane.apiserver.connection import Connection
from sandpool.kube.inline import InlineChange
from sandpool.model import kinds
from sandpool.model.claim import SandboxClaim
from sandpool.model.metadata import Key, Revision
from sandpool.model.patches import json_patch, merge_patch
from sandpool.model.sandbox import Sandbox
from support.api.local_objects import claim, sandbox
from support.api.local_server import LocalServer, local_server

PATH = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxclaims"
NOISE = ("noise-1", "noise-2", "noise-3")
READY = {
    "type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}  # fmt: skip
OWNER = {"apiVersion": "e/v1", "kind": "SandboxClaim", "name": "c", "uid": "u", "controller": True}
TRANSFER = json_patch([{"op": "add", "path": "/metadata/ownerReferences", "value": [OWNER]}])
CLIENTS, EACH = 10, 12


@dataclass
class Binding:
    """The sandbox of a claim's own name, as it was made."""

    changes: Sequence[InlineChange]
    status: Mapping[str, Any]
    annotations: Mapping[str, str] = field(default_factory=dict)

    def submitted(self, created: Revision, changed: Sequence[Revision], final: Revision) -> None: ...

    def committed(self, final: SandboxClaim, changed: Sequence[Sandbox]) -> None: ...

    def abandoned(self) -> None: ...


class Members:
    def __init__(self) -> None:
        self.revisions: dict[str, Revision] = {}

    def delay(self, namespace: str, body: Mapping[str, Any]) -> float:
        return 0.001

    def overflow(self, namespace: str, body: Mapping[str, Any]) -> None: ...

    def creating(self, obj: SandboxClaim) -> Binding | None:
        name = obj.metadata.name
        if name not in self.revisions:
            return None
        change = InlineChange(kinds.SANDBOXES, Key("default", name), self.revisions[name], TRANSFER)
        return Binding((change,), {"sandbox": {"name": name}, "conditions": [READY]})


class Tap:
    """A transport that notes in which order connections are handed what they send."""

    def __init__(self, inner: asyncio.Transport, noted: list[tuple[Tap, bytes]]) -> None:
        self._inner = inner
        self._noted = noted

    def write(self, data: bytes) -> None:
        self._noted.append((self, bytes(data)))
        self._inner.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@dataclass
class Stage:
    server: LocalServer
    connections: list[Connection]  # in the order in which they came
    handed: list[tuple[Tap, bytes]]
    ended: ExitStack

    async def connect(self) -> Client:
        before = len(self.connections)
        client = await asyncio.to_thread(Client, self.server.server.port, self.server.tls(), self.server.token)
        self.ended.callback(client.close)
        client.connection = self.connections[before]
        return client

    def answers(self) -> dict[str, int]:
        """When the answer to the POST of each claim was handed to its connection."""
        found: dict[str, int] = {}
        for number, (_, data) in enumerate(self.handed):
            if data.startswith(b"HTTP/1.1 201"):
                found[msgspec.json.decode(data.partition(b"\r\n\r\n")[2])["metadata"]["name"]] = number
        return found

    def told_ready(self) -> dict[str, list[int]]:
        """When connections were handed an event, a list or an object in which the claim is Ready."""
        found: dict[str, list[int]] = {}
        for number, (_, data) in enumerate(self.handed):
            for item in _objects(data):
                if any(one["type"] == "Ready" for one in item.get("status", {}).get("conditions", ())):
                    found.setdefault(item["metadata"]["name"], []).append(number)
        return found


def _objects(data: bytes) -> Iterator[dict[str, Any]]:
    """The objects of an answer, or of a chunk of events."""
    for line in data.splitlines():
        if not line.startswith(b"{"):
            continue
        found = msgspec.json.decode(line)
        yield from found["items"] if "items" in found else [found.get("object", found)]


class Client:
    """A raw socket, used by one thread at a time."""

    connection: Connection

    def __init__(self, port: int, tls: ssl.SSLContext, token: str) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket = tls.wrap_socket(plain, server_hostname="127.0.0.1")
        self._token = token
        self._read = b""

    def ask(self, method: str, path: str, body: bytes = b"") -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)

    def answer(self) -> int:
        """Its status; the rest is read and dropped."""
        while b"\r\n\r\n" not in self._read:
            self._read += self._some()
        head, _, body = self._read.partition(b"\r\n\r\n")
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += self._some()
        self._read = body[length:]
        return int(head[9:12])

    def until(self, word: bytes) -> None:
        """Reads on until that has come."""
        while word not in self._read:
            self._read += self._some()

    def _some(self) -> bytes:
        data = self._socket.recv(65536)
        assert data, "the server closed the connection"
        return data

    def close(self) -> None:
        self._socket.close()

    def make(self, names: list[str]) -> None:
        for name in names:
            self.ask("POST", PATH, msgspec.json.encode(whole(name)))
            assert self.answer() == 201


def whole(name: str) -> dict[str, Any]:
    return {"apiVersion": SandboxClaim.api_version, "kind": SandboxClaim.kind, **claim(name)}


@asynccontextmanager
async def a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]) -> AsyncIterator[Stage]:
    """A server whose claims of these names are served in the write that creates them."""
    handed: list[tuple[Tap, bytes]] = []
    connections: list[Connection] = []
    made = Connection.connection_made

    def tapped(connection: Connection, transport: Any) -> None:
        connections.append(connection)
        made(connection, Tap(transport, handed))  # type: ignore[arg-type]

    monkeypatch.setattr(Connection, "connection_made", tapped)
    async with local_server(tmp_path) as server:
        members = Members()
        for name in names:
            written = await server.objects.create(kinds.SANDBOXES, "default", sandbox(name))
            members.revisions[name] = written.record.revision
        for name in NOISE:
            await server.objects.create(kinds.CLAIMS, "default", claim(name))
        server.objects.hooks.register(kinds.CLAIMS, members)
        with ExitStack() as ended:
            yield Stage(server, connections, handed, ended)


async def noise(server: LocalServer) -> None:
    """Keeps every watch busy: one that is at work does not wait to be woken, and takes what is there when it looks again."""
    async with asyncio.TaskGroup() as patches:
        for number in count():
            patch = merge_patch({"metadata": {"annotations": {"number": str(number)}}})
            for name in NOISE:
                patches.create_task(server.objects.patch(kinds.CLAIMS, "default", name, patch))
            await asyncio.sleep(0)


@pytest.mark.parametrize("query", ["watch=true", "watch=true&labelSelector=!none", "watch=true&sendInitialEvents=true"])
async def test_the_answer_to_a_post_comes_before_the_news_that_the_claim_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    shares = [[f"c-{one}-{number}" for number in range(EACH)] for one in range(CLIENTS)]
    names = [name for share in shares for name in share]
    async with a_stage(tmp_path, monkeypatch, names) as stage:
        clients = [await stage.connect() for _ in range(CLIENTS + 1)]
        watcher = clients.pop()
        more = "&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true" if "Initial" in query else ""
        watcher.ask("GET", f"{PATH}?{query}{more}")
        await asyncio.to_thread(watcher.until, b"noise-3")
        busy = asyncio.create_task(noise(stage.server))
        reading = asyncio.create_task(asyncio.to_thread(watcher.until, b"the end of the test"))
        try:
            work = zip(clients, shares, strict=True)
            await asyncio.gather(*(asyncio.to_thread(client.make, share) for client, share in work))
        finally:
            busy.cancel()
            body = claim("last") | {"metadata": {"name": "last", "annotations": {"a": "the end of the test"}}}
            await stage.server.objects.create(kinds.CLAIMS, "default", body)
            await reading
        answered, ready = stage.answers(), stage.told_ready()
        assert set(answered) == set(names) == set(ready)
        assert [name for name in names if min(ready[name]) < answered[name]] == []
        assert revisions(stage, watcher.connection) == sorted(revisions(stage, watcher.connection))


def revisions(stage: Stage, connection: Connection) -> list[int]:
    """Of the events of one watch, as they were handed to it, after those that it begins with."""
    found = [
        int(item["metadata"]["resourceVersion"])
        for tap, data in stage.handed
        if tap is connection.transport
        for item in _objects(data)
    ]
    return found[len(NOISE) + 1 :]


async def test_a_list_that_is_asked_for_meanwhile_does_not_tell_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"c-{number}" for number in range(60)]
    async with a_stage(tmp_path, monkeypatch, names) as stage:
        maker, reader = await stage.connect(), await stage.connect()

        def read() -> None:
            while len(sent) < 400 and not done.is_set():
                reader.ask("GET", PATH)
                sent.append(reader.answer())

        sent: list[int] = []
        done = asyncio.Event()
        reading = asyncio.create_task(asyncio.to_thread(read))
        await asyncio.to_thread(maker.make, names)
        done.set()
        await reading
        answered, ready = stage.answers(), stage.told_ready()
        assert set(answered) == set(names)
        assert [name for name in ready if min(ready[name]) < answered[name]] == []


async def test_nobody_waits_for_a_client_that_does_not_read_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_stage(tmp_path, monkeypatch, ["c"]) as stage:
        maker, watcher = await stage.connect(), await stage.connect()
        watcher.ask("GET", f"{PATH}?watch=true")
        await asyncio.to_thread(watcher.until, b"noise-3")
        maker.connection.flow.pause_writing()  # as its transport does when too much is unread
        maker.ask("POST", PATH, msgspec.json.encode(whole("c")))
        await asyncio.to_thread(watcher.until, b'"status":"True"')
        assert stage.answers() == {}
        maker.connection.flow.resume_writing()
        assert await asyncio.to_thread(maker.answer) == 201
