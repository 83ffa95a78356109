"""Carries out the steps of a plan. Every write carries the uid of the pod that it was planned for.

What a pod refers to can be much more than the pod. Where it is, it is put together beside the event loop, in the turns of its tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from functools import partial
from typing import Any

from sandpool.kube.api import Api, Preconditions
from sandpool.kube.errors import Conflict, Invalid, NotFound
from sandpool.loop.aside import Aside, Gate
from sandpool.model.binding import binding_body, binding_resource
from sandpool.model.core import PersistentVolumeClaim
from sandpool.model.metadata import Uid
from sandpool.model.patches import Patch, json_patch
from sandpool.node.backend import Backend, Workload
from sandpool.node.kubelet.claims import bind_claims
from sandpool.node.kubelet.downward import Here
from sandpool.node.kubelet.holding import Holding
from sandpool.node.kubelet.lookup import look_up
from sandpool.node.kubelet.plan import Bind, Delete, End, Publish, Reclaim, Relabel, Restart, Start, Step, Stop
from sandpool.node.kubelet.pods import NODE_PODS, NodePod
from sandpool.node.kubelet.pre_stop import Goodbyes
from sandpool.node.kubelet.references import NOTHING, Reference, references
from sandpool.node.kubelet.resolve import Resolved, resolve
from sandpool.node.kubelet.status import foreign
from sandpool.node.kubelet.weight import heavy

FEW = 4
"""Objects that a pod refers to and that are read at any time. Pods with more take turns: all that one refers to is in memory until it is resolved."""


class Hands:
    """`claimed` is told which claims a pod is about to use, `doubted` what is wrong with it and no obstacle."""

    def __init__(
        self,
        api: Api,
        backend: Backend,
        here: Here,
        goodbyes: Goodbyes,
        claimed: Callable[[NodePod, tuple[str, ...]], object],
        doubted: Callable[[NodePod, str], object],
        *,
        aside: Aside,
        holding: Holding,
        looks_up: bool = True,
    ) -> None:
        self._api = api
        self._backend = backend
        self._here = here
        self._goodbyes = goodbyes
        self._claimed = claimed
        self._doubted = doubted
        self._aside = aside
        self._gate = Gate()
        self._holding = holding
        self._looks_up = looks_up

    async def apply(self, pod: NodePod | None, step: Step) -> None:
        match step:
            case Stop(uid, grace):
                left = self._left(pod, uid, grace)
                if left is not None:
                    await self._backend.stop(uid, left)
            case End(uid, container, grace):
                left = self._left(pod, uid, grace, container)
                if left is not None:
                    await self._backend.end(uid, container, left)
            case Restart(uid, container):
                await self._backend.restart(uid, container)
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
                    pass  # the pod is gone, as the cache will learn, and nothing is left to say about it

    def _left(self, pod: NodePod | None, uid: Uid, grace: float, container: str = "") -> float | None:
        """The grace that is left after preStop hooks; None: they still run, and the pod is looked at again after them."""
        seen = self._backend.look(uid)
        if pod is None or seen is None or pod.metadata.uid != uid:
            return grace
        return self._goodbyes.left(pod, seen, grace, container)

    async def _start(self, pod: NodePod, workload: Workload) -> None:
        if not self._looks_up:
            await self._backend.start(workload)
            return
        wanted, namespace = references(pod.spec), pod.metadata.namespace
        if len(wanted) <= FEW:
            resolved, claims = await self._resolved(pod, workload, wanted)
        else:
            async with self._gate.turn(namespace):
                resolved, claims = await self._resolved(pod, workload, wanted)
        for doubt in resolved.doubts:
            self._doubted(pod, doubt)
        self._holding.take(workload.uid, namespace, resolved.files, resolved.words)
        try:
            if claims:
                self._claimed(pod, tuple(claim.metadata.uid for claim in claims))
                await bind_claims(self._api, claims)
            await self._backend.start(resolved.workload)
        except BaseException:
            self._holding.give_back(workload.uid)
            raise

    async def _resolved(
        self, pod: NodePod, workload: Workload, wanted: Set[Reference]
    ) -> tuple[Resolved, Collection[PersistentVolumeClaim]]:
        namespace = pod.metadata.namespace
        found = await look_up(self._api, namespace, wanted) if wanted else NOTHING
        if heavy(pod, found):
            resolved = await self._aside.run(namespace, partial(resolve, pod, workload, found, self._here))
        else:
            resolved = resolve(pod, workload, found, self._here)
        return resolved, tuple(found.claims.values())

    async def _write(self, pod: NodePod, step: Bind | Publish | Delete) -> None:
        meta = pod.metadata
        match step:
            case Bind():
                await self._api.create(binding_resource(meta.name), binding_body(meta, self._here.node), meta.namespace)
            case Publish(fields):
                try:
                    await self._api.patch_status(NODE_PODS, meta.name, status_patch(pod, fields), meta.namespace)
                except Invalid as refusal:
                    if refusal.causes:
                        raise
                    # A test failed: it is another pod now, or its conditions have changed. The cache will show which.
                    raise Conflict(f"pod {meta.key} changed while its status was written: {refusal}") from refusal
            case Delete():
                await self._api.delete(
                    NODE_PODS, meta.name, meta.namespace, preconditions=Preconditions(uid=meta.uid), grace=0
                )


def status_patch(pod: NodePod, fields: dict[str, Any]) -> Patch:
    """Sets these fields. What somebody else has a part in is replaced only if it is still what was read: the status of a pod of
    which we have said nothing, and a list of conditions that are not all ours."""
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
