"""Carries out the steps of a plan. Every write carries the uid of the pod that it was planned for."""

from __future__ import annotations

from typing import Any

from sandpool.kube.api import Api, Preconditions
from sandpool.kube.errors import Conflict, Invalid, NotFound
from sandpool.local.backends.base import Backend
from sandpool.local.kubelet.plan import Bind, Delete, Publish, Restart, Start, Step, Stop
from sandpool.local.kubelet.pods import NODE_PODS, NodePod
from sandpool.local.kubelet.status import foreign
from sandpool.model.binding import binding_body, binding_resource
from sandpool.model.patches import Patch, json_patch


class Hands:
    def __init__(self, api: Api, backend: Backend, node: str) -> None:
        self._api = api
        self._backend = backend
        self._node = node

    async def apply(self, pod: NodePod | None, step: Step) -> None:
        match step:
            case Stop(uid, grace):
                await self._backend.stop(uid, grace)
            case Restart(uid, container):
                await self._backend.restart(uid, container)
            case Start(workload):
                await self._backend.start(workload)
            case Bind() | Publish() | Delete():
                assert pod is not None
                try:
                    await self._write(pod, step)
                except NotFound:
                    pass  # the pod is gone, as the cache will learn, and nothing is left to say about it

    async def _write(self, pod: NodePod, step: Bind | Publish | Delete) -> None:
        meta = pod.metadata
        match step:
            case Bind():
                await self._api.create(binding_resource(meta.name), binding_body(meta, self._node), meta.namespace)
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
    """Sets these fields. A list of conditions in which somebody else has a part is replaced only if it is still the one that
    was read."""
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}]
    if "conditions" in fields and foreign(pod):
        operations.append({"op": "test", "path": "/status/conditions", "value": pod.status["conditions"]})
    if not pod.status:
        operations.append({"op": "add", "path": "/status", "value": {}})
    operations += [{"op": "add", "path": f"/status/{name}", "value": value} for name, value in fields.items()]
    return json_patch(operations)
