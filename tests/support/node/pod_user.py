"""The life of some pods on each runtime that works for whoever starts this. Prints a line of JSON for each."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from pathlib import Path

from sandpool.base.clock import SystemClock
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import Command, ContainerSpec, Exit, PodStatus, Started, Workload, WorkloadSpec
from sandpool.node.pods.backend import PodsBackend
from sandpool.node.runtimes.contract import Runtime
from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime
from sandpool.node.runtimes.process.runtime import ProcessRuntime
from support.node.pod_parts import FolderVolumes, HostImages, QuietNetwork
from support.node.streams import TestStreams


def a_pod(number: int, command: str) -> Workload:
    spec = ContainerSpec(name="main", image="host", command=("sh", "-c", command))
    return Workload(Uid(f"uid-{number}"), Key("default", f"pod-{number}"), WorkloadSpec(containers=(spec,)))


async def live(runtime: Runtime, folder: Path) -> None:
    clock, news = SystemClock(), asyncio.Event()
    backend = PodsBackend(
        runtime, HostImages(), FolderVolumes(folder / "volumes"), QuietNetwork(), clock, folder / "pods"
    )

    async def until(work: Workload, kind: type) -> None:
        def like(seen: PodStatus | None) -> bool:
            return (
                seen is None if kind is type(None) else seen is not None and isinstance(seen.containers[0].state, kind)
            )

        while not like(backend.pod_status(work.uid)):
            news.clear()
            await news.wait()

    await backend.open(lambda uid: news.set())
    try:
        close_off = ":" if runtime.name == "process" else "mkdir -p /tmp/closed/inner && chmod 0 /tmp/closed"
        stays = a_pod(1, f"{close_off}; echo up; exec sleep 1000")
        ends = a_pod(2, "(setsid sleep 1000 &); echo over; exit 3")
        for work in (stays, ends):
            await backend.start_pod(work)
        await until(stays, Started)
        await until(ends, Exit)
        assert b"".join([text async for text in backend.logs(ends.uid, "main")]) == b"over\n"
        await backend.reclaim(ends)
        while (seen := backend.pod_status(ends.uid)) is None or not seen.reclaimed:
            news.clear()
            await news.wait()
        assert b"".join([text async for text in backend.logs(ends.uid, "main")]) == b"over\n"
        kept = [path.suffix for path in (folder / "pods" / ends.uid).rglob("*") if not path.is_dir()]
        assert kept == [".log"], kept
        streams = TestStreams(b"words")
        assert (await backend.exec(stays.uid, "main", Command(("cat",)), streams)).code == 0
        assert streams.text == b"words"
        for work in (stays, ends):
            await backend.stop_pod(work.uid, 0)
            await until(work, type(None))
        assert [path for path in (folder / "pods").rglob("*") if not path.is_dir()] == []
    finally:
        await backend.close()


async def main(folder: Path) -> None:
    installation = f"pods{os.getpid()}"
    for made in (ProcessRuntime, NamespacesRuntime):
        own = folder / made.__name__
        runtime: Runtime = made(own / "runtime", installation=installation)
        wrong = ""
        try:
            probe = await runtime.probe()
            if probe.available:
                async with asyncio.timeout(60):
                    await live(runtime, own)
            else:
                wrong = f"skip {probe.message}"
        except Exception:
            wrong = traceback.format_exc()
        print(json.dumps({"name": runtime.name, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
