"""What the router adds to a small request, and how fast a big body passes.

    python tests/bench/bench_router.py [--requests 3000] [--mebibytes 1024]

A server that only says hello (as lean as Python can be) is asked directly and through the router, in turns, by one client that
waits for each answer; then a file goes through the router into a file, and beside it through `cat | cat`. Router, server and
client are processes of their own. With strace on the machine, the system calls of the router are counted too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).parent.parent))

import uvloop

PARTS = str(Path(__file__).parent.parent)
PIECE = 256 * 1024
ASK = b"GET /box/v1/health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer abcdef\r\nX-Sandbox-ID: box\r\n\r\n"
HELLO = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n" + b'{"status":"ok"}'


class Hello(asyncio.Protocol):
    """Answers any request with the same words; the body of a PUT goes into a file."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(HELLO)


def serve_hello() -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Hello, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Event().wait()

    uvloop.run(main())


def serve_file(path: str) -> None:
    """Takes one PUT at a time into a file, with blocking calls: the fastest reader there is."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    buffer = memoryview(bytearray(PIECE))
    while True:
        connection, _ = listener.accept()
        with connection, open(path, "wb", buffering=0) as file:
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(65536)
            head, _, rest = data.partition(b"\r\n\r\n")
            left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]) - len(rest)
            file.write(rest)
            while left and (count := connection.recv_into(buffer)):
                file.write(buffer[:count])
                left -= count
            connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def serve_router(upstream: str) -> None:
    from support.network.router_server import OpenGate, router

    async def main() -> None:
        gate = OpenGate(int(upstream))
        gate.finished = lambda *_: None  # type: ignore[assignment,method-assign]
        gate.admitted = _Forgetful()
        async with router(gate) as (_, port):
            print(port, flush=True)
            await asyncio.Event().wait()

    uvloop.run(main())


class _Forgetful(list):  # type: ignore[type-arg]
    def append(self, _: object) -> None:
        pass


class Part:
    """This file, as another process that says where it listens."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, __file__, "--part", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def cpu(self) -> float:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Box:
    """A boxd that keeps its files in a folder."""

    def __init__(self, root: str) -> None:
        command = [sys.executable, "-m", "sandpool.boxd", "--port", "0", "--root", root, "--no-token"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.port = int(self.process.stderr.readline().split()[-1])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


def asked(connection: socket.socket) -> float:
    began = time.perf_counter()
    connection.sendall(ASK)
    got = connection.recv(65536)
    while not got.endswith(b"}"):
        got += connection.recv(65536)
    return time.perf_counter() - began


def small(requests: int) -> None:
    hello = Part("hello")
    middle = Part("router", str(hello.port))
    try:
        with (
            socket.create_connection(("127.0.0.1", hello.port)) as direct,
            socket.create_connection(("127.0.0.1", middle.port)) as through,
        ):
            for connection in (direct, through):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times: tuple[list[float], list[float]] = ([], [])
            for turn in range(requests + 200):
                pair = asked(direct), asked(through)
                if turn >= 200:
                    times[0].append(pair[0])
                    times[1].append(pair[1])
            one, other = (statistics.median(each) * 1e3 for each in times)
            print(
                f"small GET: {one:.3f} ms directly, {other:.3f} ms through the router, {other - one:.3f} ms more (median)"
            )
            cpu = middle.cpu()
            for _ in range(requests):
                asked(through)
            print(f"  {(middle.cpu() - cpu) / requests * 1e6:.0f} us of the router's CPU each")
            if shutil.which("strace"):
                count_calls(middle, through)
    finally:
        middle.stop()
        hello.stop()


def count_calls(middle: Part, through: socket.socket) -> None:
    with tempfile.NamedTemporaryFile("r") as found:
        strace = subprocess.Popen(["strace", "-qq", "-c", "-f", "-o", found.name, "-p", str(middle.process.pid)])
        time.sleep(0.5)
        for _ in range(100):
            asked(through)
        strace.send_signal(signal.SIGINT)
        strace.wait(10)
        for line in found.read().splitlines()[2:]:
            print("   ", line)


def upload(port: int, path: Path) -> float:
    size = path.stat().st_size
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as connection, path.open("rb") as file:
        connection.sendall(b"PUT /box/v1/files/target HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
        sent = 0
        while sent < size:
            sent += os.sendfile(connection.fileno(), file.fileno(), sent, size - sent)
        assert connection.recv(4096).startswith(b"HTTP/1.1 20")
    return time.perf_counter() - began


def big(mebibytes: int, rounds: int = 3) -> None:
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=folder) as place:
        source, target = Path(place, "source"), Path(place, "target")
        with source.open("wb") as file:
            for _ in range(mebibytes):
                file.write(os.urandom(1 << 20))
        sink = Part("file", str(target))
        box = Box(place)
        middle, before_box = Part("router", str(sink.port)), Part("router", str(box.port))
        ways = {
            "directly": sink,
            "through the router": middle,
            "into boxd": box,
            "into boxd through the router": before_box,
        }
        rates: dict[str, list[float]] = {way: [] for way in ("cat | cat", *ways)}
        try:
            for _ in range(rounds):
                began = time.perf_counter()
                subprocess.run(["sh", "-c", f"cat {source} | cat > {target}"], check=True)
                rates["cat | cat"].append(mebibytes / (time.perf_counter() - began))
                cpu = middle.cpu()
                for way, part in ways.items():
                    rates[way].append(mebibytes / upload(part.port, source))
                    assert target.stat().st_size == mebibytes << 20
                used = middle.cpu() - cpu
        finally:
            for part in ways.values():
                part.stop()
        usual = statistics.median(rates["cat | cat"])
        for what, each in rates.items():
            rate = statistics.median(each)
            print(f"{mebibytes} MiB, {what}: {rate:,.0f} MiB/s, {rate / usual:.2f} of cat")
        print(f"  {used:.2f} s of the router's CPU for the last one")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--part", nargs="+")
    options = parser.parse_args()
    if options.part:
        name, *words = options.part
        {"hello": serve_hello, "file": serve_file, "router": serve_router}[name](*words)
        return
    small(options.requests)
    big(options.mebibytes)


if __name__ == "__main__":
    main()
