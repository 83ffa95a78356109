"""What a Binding does to a pod: it sets the node and says that the pod is scheduled. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.document import Document, owning
from sandpool.kube.errors import BadRequest, Conflict
from sandpool.model import times
from sandpool.model.kinds import PODS
from sandpool.model.names import dns_subdomain


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
    there = (pod.get("spec") or {}).get("nodeName")
    if there:
        raise _refused(name, f'pod {name} is already assigned to node "{there}"')
    return placed(owning(pod), node, now)


def placed(pod: Document, node: str, now: datetime) -> Document:
    """The pod on that node, which its status says, too."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": times.seconds(now)}
    others = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    return {**pod, "spec": {**spec, "nodeName": node}, "status": {**status, "conditions": [*others, scheduled]}}


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
