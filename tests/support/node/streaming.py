"""An API server whose pods really run: as plain processes of this machine."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec

from sandpool.base.clock import SystemClock
from sandpool.controlplane.apiserver.limits import StreamLimits
from sandpool.controlplane.apiserver.server import ServerOptions
from sandpool.controlplane.apiserver.streams.serving import PodStreams
from sandpool.model import kinds
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import (
    Backend,
    Command,
    ContainerSpec,
    Exit,
    PodStatus,
    Streams,
    Waiting,
    Workload,
    WorkloadSpec,
)
from sandpool.node.pods.backend import PodsBackend
from sandpool.node.runtimes.process.runtime import ProcessRuntime
from support.api.local_server import LocalServer, local_server
from support.network.spdy_client import SpdyClient
from support.node.installation_name import installation_name
from support.node.pod_parts import FolderVolumes, HostImages, QuietNetwork

PODS = "/api/v1/namespaces/default/pods"
RUNNING: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def now() -> datetime:
    return datetime.now(UTC)


class WatchedNode:
    """A backend, ordered as a kubelet would, with a look at what passes."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.attach, self.dial = backend.attach, backend.dial
        self.execs = 0  # commands that run now
        self.shown = 0  # bytes of their output that were taken on
        self.asked: dict[str, Any] = {}  # of the last log
        self._news = asyncio.Event()

    async def open(self) -> None:
        await self.backend.open(lambda uid: self._news.set())

    async def start(self, uid: str, containers: Iterable[str], script: str, tty: bool) -> None:
        command = ("sh", "-c", script)
        spec = WorkloadSpec(
            containers=tuple(
                ContainerSpec(name=name, image="host", command=command, stdin=True, stdin_once=True, tty=tty)
                for name in containers
            )
        )
        await self.backend.start_pod(Workload(Uid(uid), Key("default", uid), spec))
        await self.until(uid, lambda running: not any(isinstance(c.state, Waiting) for c in running.containers))

    async def until(self, uid: str, condition: Callable[[PodStatus], bool]) -> None:
        while (running := self.backend.pod_status(Uid(uid))) is None or not condition(running):
            self._news.clear()
            await self._news.wait()

    async def ended(self, uid: str) -> None:
        await self.until(uid, lambda running: all(isinstance(c.state, Exit) for c in running.containers))

    async def close(self) -> None:
        for running in self.backend.list_pods():
            await self.backend.stop_pod(running.uid, 0)
        while self.backend.list_pods():
            self._news.clear()
            await self._news.wait()
        await self.backend.close()

    async def exec(self, uid: Uid, container: str, command: Command, streams: Streams) -> Exit:
        self.execs += 1
        try:
            return await self.backend.exec(uid, container, command, _Watched(self, streams))
        finally:
            self.execs -= 1

    def logs(self, uid: Uid, container: str, **options: Any) -> AsyncIterator[bytes]:
        self.asked = options
        return self.backend.logs(uid, container, **options)


class _Watched:
    def __init__(self, node: WatchedNode, streams: Streams) -> None:
        self._node = node
        self.read, self.resized, self._write = streams.read, streams.resized, streams.write

    async def write(self, stream: int, data: bytes) -> None:
        await self._write(stream, data)
        self._node.shown += len(data)


def real_pods(folder: Path) -> Backend:
    return PodsBackend(
        ProcessRuntime(folder / "runtime", installation=installation_name(folder)),
        HostImages(),
        FolderVolumes(folder / "volumes"),
        QuietNetwork(),
        SystemClock(),
        folder / "pods",
    )


@dataclass(slots=True)
class Stage:
    server: LocalServer
    node: WatchedNode

    async def pod(
        self,
        name: str = "box",
        script: str = "sleep 600",
        *,
        containers: Iterable[str] = ("main",),
        states: dict[str, dict[str, Any]] | None = None,
        last: dict[str, Any] | None = None,
        phase: str = "Running",
        annotations: dict[str, str] | None = None,
        node_name: str = "here",
        tty: bool = False,
    ) -> str:
        """A pod as a kubelet would show it, and, unless it says how its containers are, running."""
        objects = self.server.objects
        spec = [{"name": c, "image": "host", "stdin": True, "tty": tty} for c in containers]
        body = {
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {"containers": spec, "nodeName": node_name},
        }
        await objects.create(kinds.PODS, "default", body)
        shown = [
            {
                "name": c, "image": "host", "imageID": "", "ready": True, "restartCount": 0,
                "state": (states or {}).get(c, RUNNING), "lastState": last or {},
            }
            for c in containers
        ]  # fmt: skip
        answer = await self.server.request(
            "PATCH",
            f"{PODS}/{name}/status",
            {"status": {"phase": phase, "containerStatuses": shown}},
            "application/merge-patch+json",
        )
        assert answer.status == 200, answer.body
        uid: str = answer.json["metadata"]["uid"]
        if not states:
            await self.node.start(uid, containers, script, tty)
        return uid


@asynccontextmanager
async def stage(
    folder: Path, limits: StreamLimits = StreamLimits(), options: ServerOptions = ServerOptions()
) -> AsyncIterator[Stage]:
    node = WatchedNode(real_pods(folder))
    await node.open()
    try:
        async with local_server(folder, options=options, runtime=PodStreams(node, now, limits)) as server:
            yield Stage(server, node)
    finally:
        await node.close()


def query(*command: str, **options: Any) -> str:
    pairs = [("command", word) for word in command]
    return urlencode(pairs + [(name, str(value).lower()) for name, value in options.items()])


@asynccontextmanager
async def websocket(
    stage: Stage, path: str, *protocols: str, token: str = ""
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with stage.server.session.ws_connect(
        f"{stage.server.url}{PODS}/{path}",
        protocols=protocols,
        headers={"Authorization": f"Bearer {token or stage.server.token}"},
        max_msg_size=0,
    ) as opened:
        yield opened


@dataclass(slots=True)
class Heard:
    """What came of a command over channels."""

    channels: dict[int, bytes]
    code: int | None

    @property
    def status(self) -> Any:
        return msgspec.json.decode(self.channels[3])


async def heard(opened: aiohttp.ClientWebSocketResponse) -> Heard:
    """Everything until the server closes."""
    found: dict[int, bytes] = {}
    async for message in opened:
        if message.type is aiohttp.WSMsgType.BINARY:
            channel, data = message.data[0], message.data[1:]
        else:
            channel, data = int(message.data[0]), base64.b64decode(message.data[1:])
        found[channel] = found.get(channel, b"") + data
    return Heard(found, opened.close_code)


@dataclass(slots=True)
class Raw:
    """A connection after its upgrade, as bytes."""

    head: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def read(self) -> bytes:
        try:
            return await self.reader.read(64 * 1024)
        except ConnectionError:
            return b""

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


@asynccontextmanager
async def upgraded(
    stage: Stage, method: str, path: str, headers: list[tuple[str, str]], *, narrow: bool = False
) -> AsyncIterator[Raw]:
    """`narrow`: the kernel holds little for this client."""
    server = stage.server
    plain = socket.socket()
    if narrow:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", server.server.port))
    reader, writer = await asyncio.open_connection(
        sock=plain, ssl=server.tls(), server_hostname="127.0.0.1", limit=64 * 1024
    )
    try:
        lines = [f"{method} {PODS}/{path} HTTP/1.1", "Host: x", f"Authorization: Bearer {server.token}"]
        lines += [f"{name}: {value}" for name, value in headers]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        yield Raw((await reader.readuntil(b"\r\n\r\n")).decode(), reader, writer)
    finally:
        writer.transport.abort()


def spdy_headers(*protocols: str) -> list[tuple[str, str]]:
    negotiate_upgrade = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("Content-Length", "0")]
    return negotiate_upgrade + [("X-Stream-Protocol-Version", name) for name in protocols]


SOCKET = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", base64.b64encode(b"0123456789abcdef").decode()),
]


@asynccontextmanager
async def spdy(stage: Stage, path: str, *protocols: str) -> AsyncIterator[SpdyClient]:
    """A client that reads all the time."""
    async with upgraded(stage, "POST", path, spdy_headers(*protocols)) as raw:
        assert raw.head.startswith("HTTP/1.1 101 "), raw.head + (await raw.read()).decode()
        async with running(SpdyClient(raw.read, raw.write)) as client:
            yield client


@asynccontextmanager
async def tunnelled(stage: Stage, path: str) -> AsyncIterator[SpdyClient]:
    """The same through a WebSocket, as kubectl does."""
    async with websocket(stage, path, "SPDY/3.1+portforward.k8s.io") as opened:

        async def read() -> bytes:
            message = await opened.receive()
            return message.data if message.type is aiohttp.WSMsgType.BINARY else b""

        async with running(SpdyClient(read, opened.send_bytes)) as client:
            yield client


@asynccontextmanager
async def running(client: SpdyClient) -> AsyncIterator[SpdyClient]:
    task = asyncio.create_task(client.run())
    try:
        yield client
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def eventually(condition: Callable[[], bool]) -> None:
    """Waits for something that nobody tells us; the test's own time limit ends it."""
    while not condition():
        await asyncio.sleep(0.01)


async def settled(value: Callable[[], int]) -> int:
    """A number that has stopped growing."""
    last, same = value(), 0
    while same < 20:
        await asyncio.sleep(0.02)
        same = same + 1 if value() == last else 0
        last = value()
    return last
