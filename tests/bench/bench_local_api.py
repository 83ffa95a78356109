"""What a write through the in-process Api costs: durable patches by many writers at once. Prints; asserts nothing about time."""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import pstats
import sys
import tempfile
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import WatchQuery
from sandpool.controlplane.store.log import Commit, MemoryLog
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import NullObserver, Store
from sandpool.model import kinds
from sandpool.model.patches import Patch, json_patch, merge_patch


class Counted(NullObserver):
    def __init__(self) -> None:
        self.commits = self.writes = 0

    def committed(self, commit: Commit) -> None:
        self.commits += 1
        self.writes += commit.writes


def sandbox(name: str) -> dict[str, Any]:
    """About the size of a real one."""
    container = {
        "name": "main",
        "image": "registry.example.org/agents/python-runtime:1.2.3",
        "command": ["/usr/bin/python3", "-m", "http.server"],
        "env": [{"name": f"SETTING_{index}", "value": "x" * 40} for index in range(10)],
        "ports": [{"containerPort": 8888, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        "volumeMounts": [{"name": "workspace", "mountPath": "/workspace"}],
    }
    return {
        "metadata": {"name": name, "labels": {"pool": "python", "team": "agents"}},
        "spec": {
            "podTemplate": {"spec": {"containers": [container], "volumes": [{"name": "workspace", "emptyDir": {}}]}}
        },
    }


def label(turn: int) -> Patch:
    return merge_patch({"metadata": {"labels": {"turn": str(turn)}}})


def status(turn: int) -> Patch:
    condition = {
        "type": "Ready",
        "status": "True" if turn % 2 else "False",
        "reason": "DependenciesReady",
        "message": f"turn {turn}",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return merge_patch({"status": {"conditions": [condition]}})


def transfer(turn: int, uid: str) -> Patch:
    return json_patch(
        [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/metadata/labels/owner", "value": f"claim-{turn}"},
        ]
    )


async def write(api: LocalApi, kind: str, name: str, times: int) -> None:
    found = await api.get(kinds.SANDBOXES, name, "default")
    for turn in range(times):
        match kind:
            case "label (merge patch)":
                await api.patch(kinds.SANDBOXES, name, label(turn), "default")
            case "status (merge patch)":
                await api.patch_status(kinds.SANDBOXES, name, status(turn), "default")
            case _:
                await api.patch(kinds.SANDBOXES, name, transfer(turn, found.metadata.uid), "default")


async def measure(kind: str, writers: int, writes: int) -> None:
    counted = Counted()
    with tempfile.TemporaryDirectory() as folder:
        store = await Store.open(SqliteLog(Path(folder) / "store.db"), observer=counted)
        objects = Objects(store, lambda: datetime.now(UTC), lambda: str(uuid.uuid4()))
        api = LocalApi(objects)
        await objects.create(kinds.NAMESPACES, "", {"metadata": {"name": "default"}})
        names = [f"sandbox-{index:04d}" for index in range(writers)]
        await asyncio.gather(*(api.create(kinds.SANDBOXES, sandbox(name), "default") for name in names))
        size = len(objects.get(kinds.SANDBOXES, "default", names[0]).value)
        counted.commits = counted.writes = 0
        gc.collect()
        began, busy = time.perf_counter(), time.process_time()
        await asyncio.gather(*(write(api, kind, name, writes // writers) for name in names))
        seconds, cpu = time.perf_counter() - began, time.process_time() - busy
        await store.close()
    print(
        f"{kind:22} {writers:4} writers: {counted.writes / seconds:8,.0f} durable/s, "
        f"{cpu / counted.writes * 1e6:5.1f} us CPU each, {counted.writes / counted.commits:6.1f} writes per commit, "
        f"{size:,} bytes an object"
    )


async def fan_out(watchers: int, labels: str, changes: int) -> None:
    """Every change to every watcher, as the REST server takes them: stored bytes, joined as they came."""
    store = await Store.open(MemoryLog())
    objects = Objects(store, lambda: datetime.now(UTC), lambda: str(uuid.uuid4()))
    await objects.create(kinds.NAMESPACES, "", {"metadata": {"name": "default"}})
    await objects.create(kinds.SANDBOXES, "default", sandbox("x"))
    query = WatchQuery(since=store.revision, labels=labels)
    watching = [objects.watch(kinds.SANDBOXES, "default", query) for _ in range(watchers)]
    for turn in range(changes):
        await objects.patch(kinds.SANDBOXES, "default", "x", label(turn))
    gc.collect()
    began = time.process_time()
    delivered = 0
    for watch in watching:
        delivered += len(await watch.next())
    seconds = time.process_time() - began
    await store.close()
    what = f"selector {labels}" if labels else "no selector"
    print(
        f"fan-out to {watchers} watchers, {what:20}: {seconds / delivered * 1e6:5.2f} us per delivery, {delivered:,} deliveries"
    )


async def main(writes: int) -> None:
    for kind in ("label (merge patch)", "status (merge patch)", "transfer (JSON patch)"):
        for writers in (1, 300):
            await measure(kind, writers, writes if writers > 1 else writes // 20)
    for labels in ("", "pool=python"):
        await fan_out(100, labels, 500)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--writes", type=int, default=30_000)
    parser.add_argument("--profile", action="store_true", help="where the time of the loop's thread goes")
    options, _ = parser.parse_known_args()
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    with runner:
        if options.profile:
            profile = cProfile.Profile()
            profile.enable()
        runner.run(main(options.writes))
        if options.profile:
            profile.disable()
            pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(35)
