"""From a claim to its first output through the SDK, beside what the machine itself does in the same run. All that users wait for.

    python tests/bench/bench_first_output.py [--rounds 30] [--burst 100] [--mebibytes 1024] [--data-dir FOLDER]

A cluster is started with `sandpool up` (isolated pods, a durable store), and a pool that is full before each measurement. Bare is
the interpreter that sandboxes have, started on the host. Both are measured by turns; medians count. The burst is all at once on either
side. Memory is the largest resident size. On a busy machine look at ratios, and at how the bare starts fared.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.bench_router import Box
from sandpool import AsyncConnection, AsyncSandbox, Config, Connection, Sandbox
from support.product.cluster import Cluster, sandpool, stop

BARE = "/usr/bin/python3"
PROGRAM = ["-c", "print(1)"]
COMMAND = ["python3", *PROGRAM]
HEAVY = {"aiohttp", "rich", "mcp", "asyncio", "yaml", "cryptography", "httptools"}
IMPORT = """
import sys, time
began = time.perf_counter()
{}
print(time.perf_counter() - began, len(sys.modules), *sys.modules)
"""


@contextmanager
def a_cluster(folder: Path, members: int) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    cluster.up("--backend", "namespaces", "--pool", f"python={members}")
    try:
        yield cluster
    finally:
        stop(cluster)


def full(cluster: Cluster, members: int) -> None:
    """Until the pool is as it should be, and the machine has had a moment to settle."""
    sandpool("pool", "scale", "python", str(members), *cluster.flag)
    sandpool("pool", "rollout", "status", "python", *cluster.flag, "--timeout", "120")
    time.sleep(1.0)


def bare_start() -> float:
    began = time.perf_counter()
    done = subprocess.run([BARE, *PROGRAM], capture_output=True, check=True)
    assert done.stdout == b"1\n"
    return time.perf_counter() - began


def claimed_start(connection: Connection) -> tuple[float, float, float]:
    """Until the sandbox is ready, until the first output, until the end is known."""
    began = time.perf_counter()
    with Sandbox.claim("python", connection=connection) as box:
        ready = time.perf_counter() - began
        with box.stream(COMMAND) as stream:
            first = stream.read()
            said = time.perf_counter() - began
            assert first is not None
            assert first.data == b"1\n"
            while stream.read() is not None:
                pass
        return ready, said, time.perf_counter() - began


def one_by_one(cluster: Cluster, rounds: int) -> None:
    bare, claimed = [], []
    with Connection(Config(data_dir=cluster.data_dir)) as connection:
        for turn in range(rounds + 2):
            pair = bare_start(), claimed_start(connection)
            if turn >= 2:  # connections and caches are there, as in a program that runs for more than a moment
                bare.append(pair[0])
                claimed.append(pair[1])
            time.sleep(0.1)  # the pool is filled up again
    base = median(bare)
    ready, said, ended = (median(each) for each in zip(*claimed, strict=True))
    print(f"bare start of python3: {base * 1e3:.1f} ms (median of {rounds})")
    print(f"warm claim ready: {ready * 1e3:.1f} ms, {ready / base:.2f} x bare")
    print(f"warm claim to first output: {said * 1e3:.1f} ms, {said / base:.2f} x bare   (budget: 3)")
    print(f"warm claim to its end: {ended * 1e3:.1f} ms, {ended / base:.2f} x bare", flush=True)


def bare_burst(count: int) -> float:
    began = time.perf_counter()
    started = [subprocess.Popen([BARE, *PROGRAM], stdout=subprocess.PIPE) for _ in range(count)]
    for one in started:
        assert one.communicate()[0] == b"1\n"
    return time.perf_counter() - began


async def claimed_burst(cluster: Cluster, count: int) -> tuple[float, list[float], list[float]]:
    async with AsyncConnection(Config(data_dir=cluster.data_dir)) as connection:
        began = time.perf_counter()

        async def one() -> tuple[AsyncSandbox, float, float]:
            box = await AsyncSandbox.claim("python", connection=connection, timeout=120)
            ready = time.perf_counter() - began
            result = await box.run(COMMAND)
            assert result.stdout == "1\n"
            return box, ready, time.perf_counter() - began

        done = await asyncio.gather(*(one() for _ in range(count)))
        whole = time.perf_counter() - began
        await asyncio.gather(*(box.release() for box, _, _ in done))
        return whole, [ready for _, ready, _ in done], [said for _, _, said in done]


def all_at_once(cluster: Cluster, count: int, rounds: int = 3) -> None:
    bare, whole, ready, said = [], [], [], []
    for _ in range(rounds):
        full(cluster, count + 10)
        bare.append(bare_burst(count))
        wall, each_ready, each_said = asyncio.run(claimed_burst(cluster, count))
        whole.append(wall)
        ready.append(median(each_ready))
        said.append(median(each_said))
    base, wall = median(bare), median(whole)
    print(f"{count} bare starts at once: {base * 1e3:.0f} ms until the last (median of {rounds})")
    print(
        f"{count} claims at once to first output of each: {wall * 1e3:.0f} ms, {wall / base:.2f} x bare   (budget: 4)"
    )
    print(
        f"  half are ready after {median(ready) * 1e3:.0f} ms, half have said something after {median(said) * 1e3:.0f} ms"
    )


def upload(cluster: Cluster, folder: Path, mebibytes: int, rounds: int = 3) -> None:
    source, copy = folder / "source", folder / "copy"
    with source.open("wb") as file:
        for _ in range(mebibytes):
            file.write(os.urandom(1 << 16) * 16)
    cat, sent = [], []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Sandbox.claim("python", config=Config(data_dir=cluster.data_dir)) as box:
        for _ in range(rounds):
            began = time.perf_counter()
            subprocess.run(f"cat {source} | cat > {copy}", shell=True, check=True)
            cat.append(mebibytes / (time.perf_counter() - began))
            copy.unlink()
            began = time.perf_counter()
            box.files.upload(source, "there")
            sent.append(mebibytes / (time.perf_counter() - began))
            assert box.files.stat("there").size == mebibytes << 20
            box.files.remove("there")
        peak = box.run("grep VmHWM /proc/$PPID/status").stdout.split()
    source.unlink()
    usual, rate = median(cat), median(sent)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{mebibytes} MiB, cat FILE | cat > FILE: {usual:,.0f} MiB/s")
    print(f"{mebibytes} MiB, upload: {rate:,.0f} MiB/s, {rate / usual:.2f} x cat   (budget: 0.5)")
    print(f"  memory: client {grown:.0f} MiB more than before, boxd {int(peak[1]) / 1024:.0f} MiB in all", flush=True)


def asked(connection: socket.socket, request: bytes) -> float:
    began = time.perf_counter()
    connection.sendall(request)
    while not connection.recv(65536).endswith(b"}"):
        pass
    return time.perf_counter() - began


def router(cluster: Cluster, folder: Path, requests: int) -> None:
    """The real one, with all that it checks and writes down, before a boxd in a sandbox; and a boxd that is asked directly."""
    direct = Box(str(folder))
    with (
        Connection(Config(data_dir=cluster.data_dir)) as connection,
        Sandbox.claim("python", connection=connection) as box,
    ):
        way = urlsplit(connection.resolved.router)
        proof = {**dict(connection.bearer()), "X-Sandbox-ID": box.sandbox, "X-Sandbox-Namespace": box.namespace}
        head = "".join(f"{name}: {value}\r\n" for name, value in proof.items())
        request = f"GET /box/v1/health HTTP/1.1\r\nHost: {way.netloc}\r\n{head}\r\n".encode()
        with (
            socket.create_connection(("127.0.0.1", direct.port)) as straight,
            socket.create_connection((way.hostname, way.port)) as through,
        ):
            for each in (straight, through):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pairs = [(asked(straight, request), asked(through, request)) for _ in range(requests + 200)][200:]
    direct.stop()
    one, other = (median(each) * 1e3 for each in zip(*pairs, strict=True))
    print(f"small request: {one:.3f} ms to boxd directly, {other:.3f} ms through the router of the cluster")
    print(f"  {other - one:.3f} ms more (median)   (budget: 0.5 ms)", flush=True)


def imports(rounds: int = 15) -> None:
    for statement in ("import sandpool", "from sandpool import Sandbox", "from sandpool import AsyncSandbox"):
        times, loaded, heavy = [], 0, ""
        for _ in range(rounds):
            code = IMPORT.format(statement)
            said = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout.split()
            times.append(float(said[0]))
            loaded, heavy = int(said[1]), ", ".join(sorted(HEAVY & set(said[2:]))) or "none"
        print(
            f"{statement}: {median(times) * 1e3:.1f} ms, {loaded} modules, of the heavy ones {heavy}   (budget: 100 ms)"
        )


def conditions(folder: Path) -> None:
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    disk = subprocess.run(["df", "--output=fstype", folder], capture_output=True, text=True, check=True).stdout.split()[
        -1
    ]
    kind = f"{platform.machine()}, CPython {platform.python_version()}, bare {BARE}"
    print(
        f"{os.cpu_count()} CPUs, load {load}, {kind}, {'root' if os.geteuid() == 0 else 'ordinary user'}, {disk}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--burst", type=int, default=100)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--requests", type=int, default=2000, help="small ones, for the router")
    parser.add_argument(
        "--data-dir", type=Path, help="where a folder for the run is made (default: the temporary folder)"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.data_dir) as place:
        folder = Path(place)
        conditions(folder)
        imports()
        with a_cluster(folder / "data", 8) as cluster:
            full(cluster, 8)
            one_by_one(cluster, given.rounds)
            router(cluster, folder, given.requests)
            upload(cluster, folder, given.mebibytes)
            all_at_once(cluster, given.burst)
        conditions(folder)


if __name__ == "__main__":
    main()
