"""Searching for deleted files that processes hold takes threads in the turns of the pod's namespace."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from sandpool.base.clock import SystemClock
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import ContainerSpec, Workload, WorkloadSpec
from sandpool.node.pods import storage as module
from sandpool.node.pods.pod import Pod
from sandpool.node.pods.storage import PodStorage
from sandpool.node.pods.threads import Threads


@dataclass
class Sandbox:
    """Of a pod whose processes are those of this test."""

    path: Path
    made: bool = True
    volumes: dict[str, object] = field(default_factory=dict)

    @property
    def directory(self) -> Sandbox:
        return self

    def require(self) -> Sandbox:
        return self

    async def measure(self, directories: Sequence[Path]) -> list[tuple[int, int]]:
        return [(0, 0) for _ in directories]

    async def processes(self) -> Collection[int]:
        return ()


@dataclass
class APod:
    workload: Workload
    sandbox: Sandbox
    threads: Threads
    search_threads: Threads
    containers: tuple[str, ...] = ("main",)


def a_pod(name: str, tenant: str, path: Path, threads: Threads, searches: Threads) -> PodStorage:
    spec = WorkloadSpec(containers=(ContainerSpec(name="main", image="host"),))
    workload = Workload(Uid(name), Key(tenant, name), spec)
    pod = APod(workload, Sandbox(path), threads.of(tenant), searches.of(tenant))
    return PodStorage(cast(Pod, pod), SystemClock())


async def test_long_searches_of_one_namespace_leave_threads_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    def slow(pids: Any, mark: str, directory: Path, **rest: Any) -> int:
        if mark.startswith("red"):
            assert go.wait(60)
        return 7

    monkeypatch.setattr(module, "hidden", slow)
    threads, searches = Threads("test", 5), Threads("test-searches", 5)
    red = [
        asyncio.create_task(a_pod(f"red-{n}", "red", tmp_path, threads, searches).measure(thorough=False))
        for n in range(50)
    ]
    try:
        async with asyncio.timeout(30):
            used = await a_pod("blue-1", "blue", tmp_path, threads, searches).measure(thorough=False)
        assert used.hidden == 7
        assert not any(task.done() for task in red)
    finally:
        go.set()
        await asyncio.gather(*red)
        threads.close()
        searches.close()
