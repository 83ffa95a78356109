"""A node that really runs pods: the in-process Api on a store in memory, a kubelet that can be restarted, real processes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sandpool.base.clock import SystemClock
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.namespaces import ensure_namespaces
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.store import Store
from sandpool.model.kinds import PODS, raw
from sandpool.node.disk.guard import DiskGuard
from sandpool.node.kubelet.agent import Kubelet, KubeletServices
from sandpool.node.kubelet.options import KubeletOptions, Pace
from sandpool.node.pods.backend import PodsBackend
from sandpool.node.pods.context import PodsOptions
from sandpool.node.runtimes.contract import Runtime
from sandpool.node.runtimes.process.runtime import ProcessRuntime
from sandpool.node.volumes.spec import VolumeOptions
from sandpool.node.volumes.store import VolumeStore
from support.api.heard_events import HeardEvents
from support.node import runsc
from support.node.installation_name import installation_name
from support.node.pod_parts import HostImages, QuietNetwork

Body = dict[str, Any]
WAIT = 30.0
PACE = Pace(settle=0.05, first_restart=0.2, first_retry=0.1, longest_lookup=0.2, tidy=0.2)


def runtime_of(name: str, folder: Path) -> Runtime:
    if name == "process":
        return ProcessRuntime(folder, installation=installation_name(folder))
    if name == "gvisor":
        from sandpool.node.runtimes.gvisor.runtime import GvisorRuntime

        return GvisorRuntime(folder, installation=installation_name(folder), runsc=runsc.path())
    from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime

    return NamespacesRuntime(folder, installation=installation_name(folder))


@dataclass
class PodsNode:
    api: LocalApi
    runtime: str
    folder: Path
    volumes: VolumeStore
    heard: HeardEvents = field(default_factory=HeardEvents)
    network: QuietNetwork = field(default_factory=QuietNetwork)
    reserve: int | None = None  # bytes; None: nobody watches the disk
    kept: float = 0.2  # seconds for which a new process keeps what the one before left
    task: asyncio.Task[None] | None = None
    watching: asyncio.Task[None] | None = None
    guard: DiskGuard | None = None

    def start(self) -> None:
        """As a new process would: only folders are the same."""
        clock = SystemClock()
        self.backend = PodsBackend(
            runtime_of(self.runtime, self.folder / "runtime"),
            HostImages(),
            self.volumes,
            self.network,
            clock,
            self.folder / "pods",
            PodsOptions(first_retry=0.05, longest_retry=0.2, kept=self.kept),
        )
        if self.reserve is not None:
            self.guard = DiskGuard(self.folder, self.folder / "reserve", clock, self.reserve)
            self.guard.open()
            self.guard.pods = self.backend.occupants
            self.watching = asyncio.create_task(self.guard.run())
        around = KubeletServices(self.heard, folders=self.volumes, disk=self.guard)
        self.task = asyncio.create_task(Kubelet(self.api, self.backend, clock, KubeletOptions(pace=PACE), around).run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            assert self.task.cancelled(), self.task
            self.task = None
        if self.watching is not None:
            self.watching.cancel()
            await asyncio.gather(self.watching, return_exceptions=True)
            self.watching = None

    async def restart(self) -> None:
        await self.stop()
        self.start()

    async def create(self, body: Body) -> None:
        await self.api.create(PODS, body, "default")

    async def get(self, name: str = "p") -> Body:
        return (await self.api.get(raw(PODS), name, "default")).body

    async def until(self, condition: Callable[[Body | None], bool], name: str = "p") -> Body:
        """The pod once it is like that, told by a watch; None stands for one that is gone."""
        async with asyncio.timeout(WAIT):
            fields = f"metadata.name={name}"
            known = (await self.api.list(raw(PODS), "default", fields=fields)).items
            pod = known[0].body if known else None
            while not condition(pod):
                async with self.api.watch(raw(PODS), "default", fields=fields, initial=True) as events:
                    pod = None
                    async for event in events:
                        if event.initial_done and condition(pod):
                            break
                        if event.object is None:
                            continue
                        pod = event.object.body if event.type != "DELETED" else None
                        if condition(pod):
                            break
            return pod or {}

    async def gone(self, name: str = "p") -> None:
        await self.api.delete(PODS, name, "default")
        await self.until(lambda pod: pod is None, name)

    async def clear(self) -> None:
        """No pod is there, and nothing runs."""
        for pod in (await self.api.list(PODS)).items:
            await self.api.delete(PODS, pod.metadata.name, pod.metadata.namespace, grace=0)
        async with asyncio.timeout(WAIT):
            while self.backend.list_pods() or (await self.api.list(PODS)).items:
                await asyncio.sleep(0.01)

    async def log(self, name: str = "p", container: str = "main") -> str:
        uid = (await self.get(name))["metadata"]["uid"]
        return b"".join([part async for part in self.backend.logs(uid, container)]).decode()


@asynccontextmanager
async def a_pods_node(
    runtime: str, folder: Path, reserve: int | None = None, options: VolumeOptions = VolumeOptions()
) -> AsyncIterator[PodsNode]:
    store = await Store.open(MemoryLog())
    objects = Objects(store, lambda: datetime.now(UTC), lambda: str(uuid.uuid4()))
    await ensure_namespaces(objects)
    volumes = VolumeStore(folder / "volumes", options)
    node = PodsNode(LocalApi(objects), runtime, folder, volumes, reserve=reserve)
    node.start()
    try:
        yield node
    finally:
        await node.clear()
        await node.stop()
        await volumes.close()
        await store.close()
