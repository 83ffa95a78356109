"""A node in virtual time: the real in-process Api on a store in memory, a hollow backend, a kubelet that can be restarted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from sandpool.base.clock import LoopClock
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.namespaces import ensure_namespaces
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.store import Store
from sandpool.kube.api import Api
from sandpool.model.kinds import PODS, raw
from sandpool.node.backend import Backend
from sandpool.node.kubelet.agent import Kubelet, KubeletServices
from sandpool.node.kubelet.options import KubeletOptions
from sandpool.node.runtimes.fake import FakeBackend, FakeOptions
from sandpool.telemetry.reconcile_history import ReconcileHistory
from support.api.counting_api import CountingApi

START = datetime(2026, 1, 1, tzinfo=UTC)
Body = dict[str, Any]


def a_pod(name: str = "p", *, annotations: dict[str, str] | None = None, **spec: Any) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"containers": [{"name": "main", "image": "host"}], **spec},
    }


@dataclass
class ANode:
    api: CountingApi
    through: Api  # what the kubelet uses: the same, with whatever a test puts in between
    clock: LoopClock
    options: KubeletOptions
    make_backend: Callable[[], Backend]
    backend: Backend
    kubelet: Kubelet | None = None
    story: ReconcileHistory = field(default_factory=ReconcileHistory)
    around: KubeletServices = field(default_factory=KubeletServices)
    task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.kubelet = Kubelet(
            self.through, self.backend, self.clock, self.options, self.around, history=self.story, random=lambda: 0.5
        )
        self.task = asyncio.create_task(self.kubelet.run())

    async def stop(self) -> None:
        assert self.task is not None
        if self.task.done():
            self.task.result()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        assert self.task.cancelled(), self.task
        self.task = None

    async def restart(self) -> None:
        """Another process: nothing is remembered, a hollow backend least of all."""
        await self.stop()
        self.backend = self.make_backend()
        self.start()

    async def create(self, body: Body) -> None:
        await self.api.inner.create(PODS, body, "default")

    async def get(self, name: str = "p") -> Body:
        return (await self.api.inner.get(raw(PODS), name, "default")).body

    async def names(self) -> list[str]:
        return [pod.metadata.name for pod in (await self.api.inner.list(PODS, "default")).items]

    async def delete(self, name: str = "p", grace: int | None = None) -> None:
        await self.api.inner.delete(PODS, name, "default", grace=grace)

    @property
    def left(self) -> int:
        """What the kubelet and its backend still hold."""
        assert self.kubelet is not None
        probed = len(self.kubelet.prober) + len(self.kubelet.hooks)
        return len(self.kubelet.ledger.entries) + len(self.kubelet.ledger) + len(self.backend.list_pods()) + probed

    @property
    def holding(self) -> int:
        """Pods whose files and variables are counted."""
        assert self.kubelet is not None
        return len(self.kubelet.content)


@asynccontextmanager
async def a_node(
    hollow: FakeOptions = FakeOptions(),
    options: KubeletOptions = KubeletOptions(),
    *,
    make_backend: Callable[[LoopClock], Backend] | None = None,
    between: Callable[[Api], Api] = lambda api: api,
    started: bool = True,
    around: KubeletServices | None = None,
) -> AsyncIterator[ANode]:
    clock = LoopClock(START)
    uids = count(1)
    store = await Store.open(MemoryLog())
    objects = Objects(store, clock.now, lambda: f"00000000-0000-4000-8000-{next(uids):012x}")
    await ensure_namespaces(objects)
    api = CountingApi(LocalApi(objects))

    def new_backend() -> Backend:
        return make_backend(clock) if make_backend is not None else FakeBackend(clock, hollow)

    node = ANode(api, between(api), clock, options, new_backend, new_backend())
    if around is not None:
        node.around = around
    try:
        if started:
            node.start()
        yield node
        if node.task is not None:
            await node.stop()
    finally:
        if node.task is not None and not node.task.done():
            node.task.cancel()
            await asyncio.gather(node.task, return_exceptions=True)
        await store.close()


def condition(pod: Body, type_: str) -> str:
    return next((c["status"] for c in pod["status"].get("conditions", ()) if c["type"] == type_), "")
