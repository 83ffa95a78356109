"""A backend of real processes whose parts can be made to fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandpool.base.clock import SystemClock
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import ContainerSpec, Exit, PodStatus, Started, Waiting, Workload, WorkloadSpec
from sandpool.node.pods.backend import PodsBackend
from sandpool.node.pods.context import PodsOptions
from sandpool.node.runtimes.process.runtime import ProcessRuntime
from support.node.faulty_runtime import FaultyRuntime
from support.node.installation_name import installation_name
from support.node.pod_parts import FolderVolumes, HostImages, QuietNetwork

QUICK = PodsOptions(first_retry=0.05, first_pull_retry=0.05, longest_retry=0.2, kept=0.2, log_size=20_000, log_files=3)


def a_pod(command: str = "exec sleep 1000", number: int = 1, **fields: Any) -> Workload:
    spec = ContainerSpec(**{"name": "main", "image": "host", "command": ("sh", "-c", command), **fields})
    return Workload(Uid(f"uid-{number}"), Key("default", f"pod-{number}"), WorkloadSpec(containers=(spec,)))


def runs(seen: PodStatus | None) -> bool:
    return seen is not None and all(isinstance(one.state, Started) for one in seen.containers)


def over(seen: PodStatus | None) -> bool:
    return seen is not None and all(isinstance(one.state, Exit) for one in seen.containers)


def gone(seen: PodStatus | None) -> bool:
    return seen is None


def waits(reason: str) -> Callable[[PodStatus | None], bool]:
    def waiting(seen: PodStatus | None) -> bool:
        state = seen.containers[0].state if seen is not None else None
        return isinstance(state, Waiting) and state.reason == reason

    return waiting


@dataclass
class World:
    folder: Path
    options: PodsOptions = QUICK
    images: HostImages = field(default_factory=HostImages)
    network: QuietNetwork = field(default_factory=QuietNetwork)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        real = ProcessRuntime(self.folder / "runtime", installation=installation_name(self.folder))
        self.runtime = FaultyRuntime(real)
        self.volumes = FolderVolumes(self.folder / "volumes")
        self.backend = self.make()

    def make(self) -> PodsBackend:
        return PodsBackend(
            self.runtime,
            self.images,
            self.volumes,
            self.network,
            SystemClock(),
            self.folder / "pods",
            self.options,
        )

    async def open(self) -> None:
        await self.backend.open(lambda uid: self.news.set())

    async def until(self, work: Workload, condition: Callable[[PodStatus | None], bool]) -> PodStatus | None:
        async with asyncio.timeout(30):
            while not condition(self.backend.pod_status(work.uid)):
                self.news.clear()
                await self.news.wait()
        return self.backend.pod_status(work.uid)

    async def logs(self, work: Workload, **how: Any) -> bytes:
        return b"".join([text async for text in self.backend.logs(work.uid, "main", **how)])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    await world.open()
    yield world
    world.runtime.failures.clear()
    await world.backend.close()
