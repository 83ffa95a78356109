"""Pods that write more than they may, for whoever starts this. Prints a line of JSON for each attempt."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import traceback
from pathlib import Path

from sandpool.base.clock import SystemClock
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import ContainerSpec, PodStatus, Resources, Workload, WorkloadSpec
from sandpool.node.disk.guard import DiskGuard
from sandpool.node.pods.backend import PodsBackend
from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime
from support.node.disk_hiding import HIDING
from support.node.pod_parts import FolderVolumes, HostImages, QuietNetwork

LIMIT = 300 << 20
ATTEMPTS = {
    "one large file": "exec head -c 1400M /dev/zero > /big",
    "a file without a name": "exec 3> /big; rm /big; exec head -c 1400M /dev/zero >&3",
    "mapped files without a name": f"exec python3 -c {shlex.quote(HIDING['mapped files whose names have the end of a line'])}",
    "an unreadable folder": "mkdir /d; exec 3> /d/big; chmod 0 /d; exec head -c 1400M /dev/zero >&3",
}


def a_pod(number: int, command: str) -> Workload:
    limits = Resources(limits={"ephemeral-storage": str(LIMIT)})
    spec = ContainerSpec(name="main", image="host", command=("sh", "-c", f"{command}; sleep 1000"), resources=limits)
    return Workload(Uid(f"uid-{number}"), Key("default", f"pod-{number}"), WorkloadSpec(containers=(spec,)))


async def evicted(folder: Path, backend: PodsBackend, news: asyncio.Event, work: Workload) -> tuple[str, int]:
    """Why, and the most that was ever taken from the disk."""
    first = least = free(folder)
    why = ""
    await backend.start_pod(work)
    while True:
        seen: PodStatus | None = backend.pod_status(work.uid)
        if seen is None:
            return why, first - least
        why = seen.evicted or why
        least = min(least, free(folder))
        news.clear()
        try:
            async with asyncio.timeout(0.01):
                await news.wait()
        except TimeoutError:
            pass


def free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


async def main(folder: Path) -> None:
    runtime = NamespacesRuntime(folder / "runtime", installation=f"disk{os.getpid()}")
    probe = await runtime.probe()
    if not probe.available:
        print(json.dumps({"skip": probe.message}))
        return
    clock, news = SystemClock(), asyncio.Event()
    volumes = FolderVolumes(folder / "volumes")
    backend = PodsBackend(runtime, HostImages(), volumes, QuietNetwork(), clock, folder / "pods")
    guard = DiskGuard(folder, folder / "reserve", clock, 16 << 20)
    guard.open()
    guard.pods = backend.occupants
    await backend.open(lambda uid: news.set())
    watching = asyncio.create_task(guard.run())
    try:
        for number, (name, command) in enumerate(ATTEMPTS.items()):
            why, taken, wrong = "", 0, ""
            try:
                async with asyncio.timeout(30):
                    why, taken = await evicted(folder, backend, news, a_pod(number, command))
            except Exception:
                wrong = traceback.format_exc()
            print(json.dumps({"name": name, "why": why, "taken": taken, "wrong": wrong}), flush=True)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await backend.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
