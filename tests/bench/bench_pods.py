"""What a pod costs on `sandpool up` from its creation until its container runs, against bare processes on the same machine in the
same run: ratios, because machines differ. The whole way: API, durable store, kubelet, backend. Prints; asserts nothing about time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from sandpool.app.local_cluster import LocalCluster, serve
from sandpool.app.local_options import LocalOptions
from sandpool.controlplane.data_dir import DataDir
from sandpool.kube.api import Api
from sandpool.model.kinds import PODS
from sandpool.telemetry.log import configure

PYTHON = ("/usr/bin/python3", "-c", "print(1)")  # the one that sandboxes see
ONE_BY_ONE, AT_ONCE = 15, 100


def pod(name: str) -> dict[str, object]:
    main = {"name": "main", "image": "host", "command": ["sleep", "infinity"]}
    return {"metadata": {"name": name}, "spec": {"containers": [main], "terminationGracePeriodSeconds": 0}}


async def ready(api: Api, names: set[str]) -> None:
    """Creates these pods together and returns when all of them are Ready."""
    async with api.watch(PODS, "default") as events:
        await asyncio.gather(*(api.create(PODS, pod(name), "default") for name in sorted(names)))
        left = set(names)
        async for event in events:
            if event.object is not None and event.object.ready:
                left.discard(event.object.metadata.name)
            if not left:
                return


async def gone(api: Api, names: set[str]) -> None:
    await asyncio.gather(*(api.delete(PODS, name, "default") for name in sorted(names)))
    while (await api.list(PODS, "default")).items:
        await asyncio.sleep(0.02)


async def timed(body: Awaitable[object]) -> float:
    began = time.perf_counter()
    await body
    return time.perf_counter() - began


async def bare(count: int) -> None:
    started = [await asyncio.create_subprocess_exec(*PYTHON, stdout=subprocess.DEVNULL) for _ in range(count)]
    await asyncio.gather(*(process.wait() for process in started))


async def measure(api: Api) -> None:
    single, alone = [], []
    for number in range(ONE_BY_ONE):
        alone.append(await timed(bare(1)))
        single.append(await timed(ready(api, {f"one-{number}"})))
        await gone(api, {f"one-{number}"})
    one, python = sorted(single)[ONE_BY_ONE // 2], sorted(alone)[ONE_BY_ONE // 2]
    print(f"a pod, created to Ready     {one * 1e3:6.1f} ms   {one / python:5.2f} of a bare python3 (budget 3)")
    together = await timed(bare(AT_ONCE))
    names = {f"many-{number}" for number in range(AT_ONCE)}
    burst = await timed(ready(api, names))
    print(
        f"{AT_ONCE} pods at once           {burst * 1e3:6.0f} ms   {burst / together:5.2f} of as many python3 (budget 4)"
    )
    await gone(api, names)


async def main() -> None:
    configure(level="WARNING")
    with tempfile.TemporaryDirectory() as folder:
        started: asyncio.Future[LocalCluster] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        greet: Callable[[LocalCluster], None] = started.set_result
        cluster = asyncio.ensure_future(serve(LocalOptions(DataDir(Path(folder) / "data")), greet, stop))
        await asyncio.wait((started, cluster), return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            await measure(started.result().api)
        stop.set()
        await cluster


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
