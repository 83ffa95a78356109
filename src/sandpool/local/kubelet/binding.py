"""What a Binding does to a pod, on a cluster in this process: it sets the node and says that the pod is scheduled.

`bound` is the rule, `Bindings` the write, `NodeApi` an Api that serves it where there is no HTTP server in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from sandpool.kube.errors import BadRequest, Conflict
from sandpool.local.api import LocalApi
from sandpool.local.kubelet.bind import KIND
from sandpool.local.objects import refusals
from sandpool.local.objects.acknowledged import Acknowledged
from sandpool.local.objects.document import Document, decode, owning
from sandpool.local.objects.keys import key_of
from sandpool.local.objects.objects import Objects
from sandpool.local.store.port import Store
from sandpool.model import times
from sandpool.model.codec import convert
from sandpool.model.kinds import PODS
from sandpool.model.metadata import Object
from sandpool.model.names import dns_subdomain
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)


def bound(pod: Document, binding: Mapping[str, Any], now: datetime) -> Document:
    """The pod as the binding makes it, of the same generation. Raises as a server does where the pod is another one, leaving,
    or placed; for a target that cannot be, it raises 400 where a server answers 500."""
    metadata, given, target = pod["metadata"], _part(binding, "metadata"), _part(binding, "target")
    node, name = target.get("name"), metadata["name"]
    if given.get("name") not in (None, "", name):
        raise BadRequest("name in URL does not match name in Binding object")
    if target.get("kind") not in (None, "", "Node") or not isinstance(node, str) or dns_subdomain(node):
        raise BadRequest(f"binding of pod {name!r}: the target must be a Node; set target.kind and a valid target.name")
    asked = given.get("uid")
    if asked and asked != metadata["uid"]:
        raise refusals.other_uid(PODS, name, str(asked), metadata["uid"])
    if "deletionTimestamp" in metadata:
        raise _refused(name, f"pod {name} is being deleted, cannot be assigned to a host")
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if spec.get("nodeName"):
        raise _refused(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": times.seconds(now)}
    others = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    document = owning(pod)
    document["spec"] = {**spec, "nodeName": node}
    document["status"] = {**status, "conditions": [*others, scheduled]}
    return document


def _part(binding: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    part = binding.get(field)
    if part is None:
        return {}
    if not isinstance(part, Mapping):
        raise BadRequest(f"binding: {field} must be an object")
    return part


def _refused(name: str, why: str) -> Conflict:
    return Conflict(
        f'Operation cannot be fulfilled on pods/binding "{name}": {why}', details={"name": name, "kind": "pods/binding"}
    )


class Bindings:
    """Reads the newest pod, decides and puts without an await in between, like every other write of local/objects."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._log = Acknowledged(store)
        self._now = now

    async def create(self, namespace: str, name: str, binding: Mapping[str, Any]) -> None:
        record = self._store.newest(key_of(PODS, namespace, name))
        if record is None:
            raise refusals.not_found(PODS, name)
        try:
            document = bound(decode(record), binding, self._now())
        except (BadRequest, Conflict):
            await self._log.durable(record.revision)
            raise
        await self._log.put(record.key, record.revision, document)


class NodeApi(LocalApi):
    """The Api of a kubelet that runs in the process of its API server: it also takes bindings."""

    def __init__(self, objects: Objects, bindings: Bindings) -> None:
        super().__init__(objects)
        self._bindings = bindings

    async def create(self, resource: Resource[T], body: T | Mapping[str, Any], namespace: str = "") -> T:
        if resource.kind != KIND or resource.group or not isinstance(body, Mapping):
            return await super().create(resource, body, namespace)
        await self._bindings.create(namespace, body["metadata"]["name"], body)
        return convert(resource, body)
