"""What a request and a watch delivery cost the server, over HTTPS, with the server alone on one core.

    python tests/bench/bench_http.py [--seconds 5] [--watchers 100]

The server runs in a process of its own, pinned to the first core, on a real SQLite file; the client gets the other cores.
Rates depend on the machine; microseconds of server CPU (user and system, read from /proc) per request much less so.
The client is a hand-written HTTP/1.1 pipe, because an ordinary client would be the bottleneck.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent.parent))

import base64

import msgspec
import uvloop
import yaml

SANDBOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"
MERGE = b"application/merge-patch+json"


def sandbox(name: str) -> dict[str, Any]:
    """About 2.7 KB, as real ones are."""
    env = [{"name": f"VARIABLE_{i}", "value": f"some value that is not short {i}"} for i in range(20)]
    container = {"name": "main", "image": "registry.example/python:3.12", "env": env, "command": ["sleep", "infinity"]}
    return {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": name, "labels": {"pool": "python", "app": "bench"}},
        "spec": {"podTemplate": {"spec": {"containers": [container]}}},
    }


class Server:
    """A local_server in its own process on core 0."""

    def __init__(self, folder: Path) -> None:
        code = (
            "import os, sys; os.sched_setaffinity(0, {0}); sys.path.insert(0, sys.argv[2])\n"
            "import uvloop, gc; from pathlib import Path; from support.api.local_server import _main\n"
            "gc.freeze(); uvloop.run(_main(Path(sys.argv[1])))\n"
        )
        tests = str(Path(__file__).parent.parent)
        self.process = subprocess.Popen([sys.executable, "-c", code, str(folder), tests], stdout=subprocess.DEVNULL)
        kubeconfig = folder / "kubeconfig"
        deadline = time.monotonic() + 20
        while not kubeconfig.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the server did not start")
            time.sleep(0.02)
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self.port = int(cluster["server"].rpartition(":")[2])
        self.token = config["users"][0]["user"]["token"]
        self.tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())

    def cpu(self) -> float:
        """Seconds of CPU that the process has used, in the kernel too."""
        return sum(self.times())

    def times(self) -> tuple[float, float]:
        """User and system seconds."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        tick = os.sysconf("SC_CLK_TCK")
        return int(stat[11]) / tick, int(stat[12]) / tick

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


class Pipe:
    """One connection, one request at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._head = f"Host: localhost\r\nAuthorization: Bearer {server.token}\r\nAccept: application/json\r\n".encode()

    async def open(self) -> Pipe:
        self.reader, self.writer = await asyncio.open_connection(
            "localhost", self._server.port, ssl=self._server.tls, limit=2**24
        )
        return self

    def request(self, method: bytes, path: str, body: bytes = b"", media: bytes = b"application/json") -> bytes:
        head = (method, path.encode(), self._head, media, len(body), body)
        return b"%s %s HTTP/1.1\r\n%sContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % head

    async def ask(
        self, method: bytes, path: str, body: bytes = b"", media: bytes = b"application/json"
    ) -> tuple[int, bytes]:
        self.writer.write(self.request(method, path, body, media))
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head[9:12]), await self.reader.readexactly(length)

    def close(self) -> None:
        self.writer.close()


class Hammer(asyncio.Protocol):
    """One connection that sends the next request as soon as the answer is whole. As lean as Python can be."""

    def __init__(self, requests: Iterator[bytes], end: float) -> None:
        self._requests = requests
        self._end = end
        self._buffer = b""
        self._missing = 0
        self.count = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
        else:
            self._buffer += data
            at = self._buffer.find(b"\r\n\r\n")
            if at < 0:
                return
            head = self._buffer[:at]
            if not head.startswith(b"HTTP/1.1 200 "):
                self.done.set_exception(RuntimeError(self._buffer.decode()))
                self._transport.abort()
                return
            start = head.index(b"content-length: ") + 16
            length = int(head[start:].partition(b"\r\n")[0])
            self._missing = length - (len(self._buffer) - at - 4)
            self._buffer = b""
        if self._missing == 0:
            self.count += 1
            if time.perf_counter() < self._end:
                self._transport.write(next(self._requests))
            elif not self.done.done():
                self.done.set_result(None)
                self._transport.close()


async def hammer(server: Server, what: str, seconds: float, feeds: list[Iterator[bytes]]) -> None:
    loop = asyncio.get_running_loop()
    end = time.perf_counter() + seconds + 0.3  # connections are made first
    began, cpu = time.perf_counter(), server.cpu()
    made = [
        await loop.create_connection(
            partial(Hammer, feed, end), "localhost", server.port, ssl=server.tls, server_hostname="localhost"
        )
        for feed in feeds
    ]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    count = sum(protocol.count for _, protocol in made)
    report(f"{what}, {len(feeds)} connections", count, time.perf_counter() - began, server.cpu() - cpu)


def turns(server: Server, path: str) -> Iterator[bytes]:
    turn = 0
    while True:
        turn += 1
        yield Pipe(server).request(b"PATCH", path, b'{"metadata":{"annotations":{"turn":"%d"}}}' % turn, MERGE)


async def patches(server: Server, seconds: float, connections: int) -> None:
    maker = await Pipe(server).open()
    names = [f"p-{connections}-{index}-{seconds}" for index in range(connections)]
    for name in names:
        status, body = await maker.ask(b"POST", SANDBOXES, msgspec.json.encode(sandbox(name)))
        assert status == 201, body
    maker.close()
    await hammer(server, "PATCH, durable", seconds, [turns(server, f"{SANDBOXES}/{name}") for name in names])


async def gets(server: Server, seconds: float, connections: int) -> None:
    maker = await Pipe(server).open()
    await maker.ask(b"POST", SANDBOXES, msgspec.json.encode(sandbox("g")))
    maker.close()
    request = Pipe(server).request(b"GET", f"{SANDBOXES}/g")
    await hammer(server, "GET", seconds, [repeat(request) for _ in range(connections)])


async def fan_out(server: Server, watchers: int, writers: int, rounds: int) -> None:
    """Every write reaches every watcher; the cost of the writes alone is measured first and taken off."""
    pipes = [await Pipe(server).open() for _ in range(writers)]
    names = [f"w-{watchers}-{writers}-{index}" for index in range(writers)]
    for name, pipe in zip(names, pipes, strict=True):
        await pipe.ask(b"POST", SANDBOXES, msgspec.json.encode(sandbox(name)))
    alone = await _write_rounds(server, pipes, names, rounds, 0)
    _, listed = await pipes[0].ask(b"GET", SANDBOXES + "?limit=1")
    since = msgspec.json.decode(listed)["metadata"]["resourceVersion"]
    seen = [0] * watchers
    tasks = [asyncio.create_task(_watch(server, since, seen, index)) for index in range(watchers)]
    await asyncio.sleep(1.0)
    cpu, (_, kernel) = server.cpu(), server.times()
    began = time.perf_counter()
    await _write_rounds(server, pipes, names, rounds, rounds)
    total = writers * rounds
    deadline = time.perf_counter() + 30
    while min(seen) < total and time.perf_counter() < deadline:
        await asyncio.sleep(0.01)
    took, used = time.perf_counter() - began, server.cpu() - cpu
    delivered = sum(seen)
    assert delivered == total * watchers, f"{delivered} of {total * watchers} deliveries"
    each = (used - alone) / delivered * 1e6
    in_kernel = (server.times()[1] - kernel) / delivered * 1e6
    print(
        f"fan-out, {watchers} watchers, {writers} writers: {delivered} deliveries, {delivered / took:,.0f}/s, "
        f"{each:.1f} us of server CPU per delivery (at most {in_kernel:.1f} of them in the kernel)"
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for pipe in pipes:
        pipe.close()


async def _write_rounds(server: Server, pipes: list[Pipe], names: list[str], rounds: int, first: int) -> float:
    cpu = server.cpu()

    async def worker(pipe: Pipe, name: str) -> None:
        for turn in range(rounds):
            body = b'{"metadata":{"annotations":{"turn":"%d"}}}' % (first + turn)
            await pipe.ask(b"PATCH", f"{SANDBOXES}/{name}", body, MERGE)

    await asyncio.gather(*(worker(pipe, name) for pipe, name in zip(pipes, names, strict=True)))
    return server.cpu() - cpu


async def _watch(server: Server, since: str, seen: list[int], index: int) -> None:
    pipe = await Pipe(server).open()
    pipe.writer.write(pipe.request(b"GET", f"{SANDBOXES}?watch=1&resourceVersion={since}"))
    await pipe.reader.readuntil(b"\r\n\r\n")
    try:
        while chunk := await pipe.reader.read(2**20):
            seen[index] += chunk.count(b'{"type":"MODIFIED"')
    finally:
        pipe.close()


def report(what: str, count: int, took: float, used: float) -> None:
    print(
        f"{what}: {count / took:,.0f}/s, {used / count * 1e6:.0f} us of server CPU each, server {used / took:.0%} busy"
    )


async def measure(server: Server, seconds: float, watchers: int) -> None:
    await patches(server, 1.0, 8)  # warm up
    await patches(server, seconds, 1)
    await patches(server, seconds, 64)
    await gets(server, seconds, 64)
    await fan_out(server, watchers, 1, 300)
    await fan_out(server, watchers, 32, 30)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--watchers", type=int, default=100)
    options = parser.parse_args()
    others = os.sched_getaffinity(0) - {0}
    os.sched_setaffinity(0, others or {0})
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            uvloop.run(measure(server, options.seconds, options.watchers))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
