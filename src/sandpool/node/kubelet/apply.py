"""Carries out the steps of a plan. Every write tests the uid of the pod that it was planned for.

The objects that a pod refers to can be much larger than the pod. Large ones are resolved off the event loop, and tenants take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from functools import partial
from typing import Any

from sandpool.base.offload import FairLock, Offload
from sandpool.kube.api import Api, Preconditions
from sandpool.kube.errors import Conflict, Invalid, NotFound
from sandpool.model.binding import binding_body, binding_resource
from sandpool.model.core import PersistentVolumeClaim
from sandpool.model.metadata import Uid
from sandpool.model.patches import Patch, json_patch
from sandpool.node.backend import Backend, Workload
from sandpool.node.kubelet.content_budget import ContentBudget
from sandpool.node.kubelet.downward import NodeInfo
from sandpool.node.kubelet.lookup import look_up
from sandpool.node.kubelet.plan import Bind, Delete, Publish, Reclaim, Relabel, Start, Step, Stop
from sandpool.node.kubelet.pods import NODE_PODS, NodePod
from sandpool.node.kubelet.pre_stop import PreStopHooks
from sandpool.node.kubelet.references import NOTHING, Reference, heavy, references
from sandpool.node.kubelet.resolve import Resolved, resolve
from sandpool.node.kubelet.status import foreign
from sandpool.node.kubelet.volume_claims import bind_claims
from sandpool.node.pods.life import RestartContainer, StopContainer

FEW = 4
"""A pod with at most this many references is resolved at once. Pods with more take turns, because everything that a pod refers to stays in
memory until it is resolved."""


class Applier:
    """Carries out steps. `claimed` is called with the claims that a pod is about to use, `warned` with problems that do not prevent the start."""

    def __init__(
        self,
        api: Api,
        backend: Backend,
        node_info: NodeInfo,
        hooks: PreStopHooks,
        claimed: Callable[[NodePod, tuple[str, ...]], object],
        warned: Callable[[NodePod, str], object],
        *,
        offload: Offload,
        holding: ContentBudget,
        looks_up: bool = True,
    ) -> None:
        self._api = api
        self._backend = backend
        self._node_info = node_info
        self._hooks = hooks
        self._claimed = claimed
        self._doubted = warned
        self._offload = offload
        self._gate = FairLock()
        self._content = holding
        self._looks_up = looks_up

    async def apply(self, pod: NodePod | None, step: Step) -> None:
        match step:
            case Stop(uid, grace):
                left = self._left(pod, uid, grace)
                if left is not None:
                    await self._backend.stop_pod(uid, left)
            case StopContainer(uid, container, grace):
                left = self._left(pod, uid, grace, container)
                if left is not None:
                    await self._backend.stop_container(uid, container, left)
            case RestartContainer(uid, container):
                await self._backend.restart_container(uid, container)
            case Reclaim(workload):
                await self._backend.reclaim(workload)
            case Relabel(uid, labels):
                self._backend.relabel(uid, labels)
            case Start(workload):
                assert pod is not None
                await self._start(pod, workload)
            case Bind() | Publish() | Delete():
                assert pod is not None
                try:
                    await self._write(pod, step)
                except NotFound:
                    pass  # the pod is gone; the cache will show that

    def _left(self, pod: NodePod | None, uid: Uid, grace: float, container: str = "") -> float | None:
        """The grace period left after preStop hooks. None while they run; the pod is reconciled again when they have ended."""
        seen = self._backend.pod_status(uid)
        if pod is None or seen is None or pod.metadata.uid != uid:
            return grace
        return self._hooks.left(pod, seen, grace, container)

    async def _start(self, pod: NodePod, workload: Workload) -> None:
        if not self._looks_up:
            await self._backend.start_pod(workload)
            return
        wanted, namespace = references(pod.spec), pod.metadata.namespace
        if len(wanted) <= FEW:
            resolved, claims = await self._resolved(pod, workload, wanted)
        else:
            async with self._gate.turn(namespace):
                resolved, claims = await self._resolved(pod, workload, wanted)
        for doubt in resolved.warnings:
            self._doubted(pod, doubt)
        self._content.take(workload.uid, namespace, resolved.files, resolved.words)
        try:
            if claims:
                self._claimed(pod, tuple(claim.metadata.uid for claim in claims))
                await bind_claims(self._api, claims)
            await self._backend.start_pod(resolved.workload)
        except BaseException:
            self._content.give_back(workload.uid)
            raise

    async def _resolved(
        self, pod: NodePod, workload: Workload, wanted: Set[Reference]
    ) -> tuple[Resolved, Collection[PersistentVolumeClaim]]:
        namespace = pod.metadata.namespace
        found = await look_up(self._api, namespace, wanted) if wanted else NOTHING
        if heavy(pod, found):
            resolved = await self._offload.run(namespace, partial(resolve, pod, workload, found, self._node_info))
        else:
            resolved = resolve(pod, workload, found, self._node_info)
        return resolved, tuple(found.claims.values())

    async def _write(self, pod: NodePod, step: Bind | Publish | Delete) -> None:
        meta = pod.metadata
        match step:
            case Bind():
                await self._api.create(
                    binding_resource(meta.name), binding_body(meta, self._node_info.node), meta.namespace
                )
            case Publish(fields):
                try:
                    await self._api.patch_status(NODE_PODS, meta.name, status_patch(pod, fields), meta.namespace)
                except Invalid as refusal:
                    if refusal.causes:
                        raise
                    # A test operation failed: it is another pod now, or its conditions have changed. The cache will show which.
                    raise Conflict(f"pod {meta.key} changed while its status was written: {refusal}") from refusal
            case Delete():
                await self._api.delete(
                    NODE_PODS, meta.name, meta.namespace, preconditions=Preconditions(uid=meta.uid), grace=0
                )


def status_patch(pod: NodePod, fields: dict[str, Any]) -> Patch:
    """A patch that sets these status fields. What others may have written is replaced only if it is unchanged since it was read: the whole
    status before our first write, and conditions that include those of others."""
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}]
    if not pod.acknowledged:
        if pod.status:
            operations.append({"op": "test", "path": "/status", "value": pod.status})
        operations.append({"op": "add", "path": "/status", "value": {**pod.status, **fields}})
        return json_patch(operations)
    if "conditions" in fields and foreign(pod):
        operations.append({"op": "test", "path": "/status/conditions", "value": pod.status["conditions"]})
    operations += [{"op": "add", "path": f"/status/{name}", "value": value} for name, value in fields.items()]
    return json_patch(operations)
