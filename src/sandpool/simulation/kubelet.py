"""Nodes, a scheduler and kubelets in one actor: pods are placed, start, become ready or never do, and end when deleted.

It follows the steps of the world. Its own writes always succeed, after seeded delays, and in the stages that the
controllers distinguish: scheduled, running without an address or readiness, ready. In some seeds only a few pods start at once, so that claims
arrive faster than they can be served.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from sandpool.kube.api import Preconditions
from sandpool.kube.errors import ApiError
from sandpool.model.binding import binding_body, binding_resource
from sandpool.model.kinds import NODES, PODS
from sandpool.model.metadata import Metadata
from sandpool.model.patches import json_patch, merge_patch
from sandpool.model.pod import Phase, Pod
from sandpool.simulation.faults import Fault, Faults
from sandpool.simulation.steps import KUBELET, Step, writes_as
from sandpool.simulation.world import World

_SCHEDULED = {"type": "PodScheduled", "status": "True"}
_READY = {"type": "Ready", "status": "True"}
_UNREADY = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}


class Kubelet:
    """All nodes of the simulated cluster."""

    def __init__(
        self, world: World, faults: Faults, chance: Random, nodes: tuple[str, ...], at_once: int = 1_000
    ) -> None:
        self._world = world
        self._faults = faults
        self._chance = chance
        self._nodes = nodes
        self._cordoned: dict[str, None] = {}
        self._open = asyncio.Event()  # at least one node takes pods
        self._open.set()
        self._stuck: dict[str, Metadata] = {}
        self._addresses = 0
        self._room = asyncio.Semaphore(at_once)
        self.start_time = chance.choice((0.2, 1.0, 4.0))
        world.listeners.append(self._on_event)

    def _on_event(self, step: Step) -> None:
        if step.resource is not PODS or step.new is None:
            return
        if step.old is None:
            self._world.spawn(self._run(step.new))
        elif step.new.metadata.leaving and not step.old.metadata.leaving:
            self._world.spawn(self._end(step.new.metadata))

    async def _run(self, pod: Pod) -> None:
        writes_as(KUBELET)
        meta = pod.metadata
        await asyncio.sleep(self._chance.random() * 0.2)
        try:
            await self._place(meta)
            async with self._room:
                await asyncio.sleep(self._chance.random() * self.start_time)
            if self._faults.strikes(Fault.POD_STUCK):
                self._stuck[meta.uid] = meta
                return
            if self._chance.random() < 0.3:
                await self._say(meta, phase=Phase.RUNNING, conditions=[_SCHEDULED, _UNREADY])
                await asyncio.sleep(self._chance.random() * self.start_time)
            await self._ready(meta)
            if self._faults.strikes(Fault.POD_FAILED):
                await asyncio.sleep(self._chance.random() * 20)
                await self.finish(meta, Phase.FAILED)
        except ApiError:
            pass  # the pod is gone

    async def _place(self, meta: Metadata) -> None:
        await self._open.wait()
        node = self._chance.choice([node for node in self._nodes if node not in self._cordoned])
        await self._world.api.create(binding_resource(meta.name), binding_body(meta, node), meta.namespace)

    async def _ready(self, meta: Metadata) -> None:
        self._addresses += 1
        ip = f"10.0.{self._addresses // 250}.{self._addresses % 250 + 1}"
        await self._say(meta, phase=Phase.RUNNING, conditions=[_SCHEDULED, _READY], podIP=ip, podIPs=[{"ip": ip}])

    async def finish(self, meta: Metadata, phase: Phase) -> None:
        """The pod ends by itself."""
        await self._say(meta, phase=phase, conditions=[_SCHEDULED, _UNREADY])

    async def _say(self, meta: Metadata, **fields: Any) -> None:
        operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": meta.uid}]
        operations += [{"op": "add", "path": f"/status/{name}", "value": value} for name, value in fields.items()]
        await self._world.api.patch_status(PODS, meta.name, json_patch(operations), meta.namespace)

    async def _end(self, meta: Metadata) -> None:
        writes_as(KUBELET)
        await asyncio.sleep(self._chance.random() ** 3 * 5)
        try:
            await self._world.api.delete(
                PODS, meta.name, meta.namespace, preconditions=Preconditions(uid=meta.uid), grace=0
            )
        except ApiError:
            pass

    async def drain(self, node: str) -> None:
        """Cordons a node and evicts what runs on it."""
        self._cordoned[node] = None
        if len(self._cordoned) == len(self._nodes):
            self._open.clear()
        await self._world.api.patch(NODES, node, merge_patch({"spec": {"unschedulable": True}}))
        for pod in self._world.of(Pod.kind):
            if pod.spec.node_name == node:
                await asyncio.sleep(self._chance.random() * 0.5)
                try:
                    await self._world.api.delete(PODS, pod.metadata.name, pod.metadata.namespace)
                except ApiError:
                    pass

    async def uncordon(self, node: str) -> None:
        self._cordoned.pop(node, None)
        self._open.set()
        await self._world.api.patch(NODES, node, merge_patch({"spec": {"unschedulable": None}}))

    async def recover(self) -> None:
        """Uncordons all nodes and lets stuck pods become ready."""
        for node in tuple(self._cordoned):
            await self.uncordon(node)
        stuck, self._stuck = self._stuck, {}
        for meta in stuck.values():
            try:
                await self._ready(meta)
            except ApiError:
                pass
