"""What a sandbox of the namespaces runtime costs, against bare processes on the same machine in the same run: ratios, because
machines differ. Prints; asserts nothing about time."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from sandpool.node.images.image import RootFs
from sandpool.node.runtimes.contract import ContainerPlan, ExecPlan, SandboxPlan, Stdio
from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime
from sandpool.node.runtimes.namespaces.sandbox import NamespaceSandbox

PYTHON = ("/usr/bin/python3", "-c", "print(1)")  # the one that sandboxes see
HOST = RootFs(host=True)


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = NamespacesRuntime(folder / "runtime", installation=f"bench{os.getpid()}")
        self._made = 0

    async def start(self) -> NamespaceSandbox:
        self._made += 1
        folder = self.folder / str(self._made)
        folder.mkdir()
        sandbox = await self.runtime.create(SandboxPlan(f"pod-{self._made}", "box", folder))
        await sandbox.start(ContainerPlan("main", ("sleep", "1000000"), HOST), Stdio())
        return sandbox

    async def exec(self, sandbox: NamespaceSandbox) -> float:
        began = time.perf_counter()
        await (await sandbox.containers[0].exec(ExecPlan(("true",)), Stdio())).ended
        return time.perf_counter() - began


async def timed(body: Callable[[], Awaitable[object]]) -> tuple[float, object]:
    began = time.perf_counter()
    result = await body()
    return time.perf_counter() - began, result


def bare(argv: tuple[str, ...]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def bare_at_once(count: int) -> float:
    began = time.perf_counter()
    for process in [subprocess.Popen(PYTHON, stdout=subprocess.DEVNULL) for _ in range(count)]:
        process.wait()
    return time.perf_counter() - began


async def one_by_one(bench: Bench, rounds: int) -> dict[str, float]:
    """Alternating, so that a busy moment of the machine does not decide."""
    starts, pythons, execs, trues, ends = [], [], [], [], []
    for _ in range(rounds):
        pythons.append(bare(PYTHON))
        seconds, sandbox = await timed(bench.start)
        starts.append(seconds)
        assert isinstance(sandbox, NamespaceSandbox)
        for _ in range(5):
            trues.append(bare(("true",)))
            execs.append(await bench.exec(sandbox))
        ends.append((await timed(sandbox.destroy))[0])
    return {
        "start_ms": median(starts) * 1e3, "bare_python_ms": median(pythons) * 1e3, "start_ratio": median(starts) / median(pythons),
        "exec_ms": median(execs) * 1e3, "bare_true_ms": median(trues) * 1e3, "exec_ratio": median(execs) / median(trues),
        "destroy_ms": median(ends) * 1e3,
    }  # fmt: skip


async def at_once(bench: Bench, count: int) -> dict[str, float]:
    alone = bare_at_once(count)
    before = available()
    seconds, sandboxes = await timed(lambda: asyncio.gather(*(bench.start() for _ in range(count))))
    assert isinstance(sandboxes, list)
    used = before - available()
    await asyncio.gather(*(sandbox.destroy() for sandbox in sandboxes))
    return {
        "burst_ms": seconds * 1e3,
        "bare_burst_ms": alone * 1e3,
        "burst_ratio": seconds / alone,
        "mib_each": used / count / 2**20,
    }


def available() -> int:
    found = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    assert found is not None
    return int(found[1]) * 1024


async def measure(rounds: int, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        await bench.runtime.open()
        try:
            await (await bench.start()).destroy()  # the fork-server is there, the files are in memory
            return {**await one_by_one(bench, rounds), **await at_once(bench, count)}
        finally:
            await bench.runtime.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--at-once", type=int, default=100)
    options, _ = parser.parse_known_args()
    found = asyncio.run(measure(options.rounds, options.at_once))
    if options.json:
        print(json.dumps(found))
        return 0
    print(
        f"start of a sandbox      {found['start_ms']:8.1f} ms   {found['start_ratio']:5.2f} of a bare python3 (budget 3)"
    )
    print(f"exec of true            {found['exec_ms']:8.2f} ms   {found['exec_ratio']:5.2f} of a bare true (budget 2)")
    print(
        f"{options.at_once} at once             {found['burst_ms']:8.0f} ms   {found['burst_ratio']:5.2f} of as many python3 (budget 4)"
    )
    print(f"memory of a warm one    {found['mib_each']:8.2f} MiB  (budget 5)")
    print(f"end of a sandbox        {found['destroy_ms']:8.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
