"""Binds pods to nodes: applies a Binding to a pod, and chooses the node of a new pod when it is created.

A node declares by an annotation that it takes unscheduled pods (`model/binding.py`), and by its lease that it is alive. If the node can certainly
run a new pod, the pod is created already bound to it; any other pod is left to the kubelet, which binds it later.
Nodes, leases and classes are read from the durable state, so a response may be derived from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.document import Document, decode, owning
from sandpool.controlplane.objects.keys import key_of, prefix_of
from sandpool.controlplane.store.port import Store
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import BadRequest, Conflict, Forbidden
from sandpool.model import kinds, times
from sandpool.model.binding import NODE_LEASES, TAKES_PODS
from sandpool.model.kinds import PODS
from sandpool.model.names import dns_subdomain

_NODES = prefix_of(kinds.NODES)
_NEVER = datetime.min.replace(tzinfo=UTC)


class Placing:
    """Chooses the node of a new pod."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._record: Record | None = None  # of the node that got the last pod
        self._node: Document = {}
        self._lease: Record | None = None
        self._lives_until = _NEVER

    def runtime_refusal(self, pod: Document) -> Forbidden | None:
        """Why the pod may not use the runtime that it names: that needs a RuntimeClass, which only the operator can create. The pod's overhead
        must be that of the class: with a smaller one it would use more than its namespace's quota allows."""
        spec = pod.get("spec") or {}
        runtime, overhead = spec.get("runtimeClassName"), spec.get("overhead")
        if not runtime and not overhead:
            return None
        name = pod["metadata"].get("name", "")
        record = self._store.newest(key_of(kinds.RUNTIME_CLASSES, "", runtime)) if runtime else None
        if runtime and record is None:
            return refusals.pod_rejected(name, f'RuntimeClass "{runtime}" not found')
        fixed = ((decode(record).get("overhead") or {}).get("podFixed")) if record is not None else None
        if overhead and not fixed:
            return refusals.pod_rejected(name, "Pod Overhead set without corresponding RuntimeClass defined Overhead")
        if overhead and overhead != fixed:
            return refusals.pod_rejected(name, "Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        return None

    def place(self, pod: Document, now: datetime) -> Document:
        """The pod, bound to a node if one can run it, else unchanged."""
        spec = pod.get("spec") or {}
        if spec.get("nodeName") or spec.get("schedulingGates") or spec.get("schedulerName") != "default-scheduler":
            return pod
        if not self._known() or not self._fits(spec):
            return pod
        name = self._node["metadata"]["name"]
        return placed(pod, name, now) if self._lives(name, now) else pod

    def _known(self) -> bool:
        """Whether there is a node that takes pods. It is cached until its record changes."""
        known = self._record
        if known is not None and self._store.get(known.key) is known:
            return True
        self._record = None
        for record in self._store.scan(_NODES).records:
            node = decode(record)
            if _takes(node):
                self._record, self._node = record, node
                return True
        return False

    def _lives(self, name: str, now: datetime) -> bool:
        """Whether the node's lease is valid: an earlier process may have left the Node object behind."""
        record = self._store.get(key_of(kinds.LEASES, NODE_LEASES, name))
        if record is not self._lease:
            self._lease = record
            self._lives_until = _NEVER if record is None else _end_of(decode(record))
        return now < self._lives_until

    def _fits(self, spec: dict[str, Any]) -> bool:
        wanted, labels = spec.get("nodeSelector"), self._node["metadata"].get("labels") or {}
        if wanted and any(labels.get(name) != value for name, value in wanted.items()):
            return False
        runtime = spec.get("runtimeClassName")
        return not runtime or self._runs(runtime)

    def _runs(self, name: str) -> bool:
        """Whether the node's status lists the runtime handler of this RuntimeClass."""
        record = self._store.get(key_of(kinds.RUNTIME_CLASSES, "", name))
        handler = decode(record).get("handler") if record is not None else name
        offered = (self._node.get("status") or {}).get("runtimeHandlers") or ()
        return any(one.get("name") == handler for one in offered)


def _end_of(lease: Document) -> datetime:
    spec = lease.get("spec") or {}
    try:
        return times.parse(spec.get("renewTime") or "") + timedelta(seconds=spec.get("leaseDurationSeconds") or 0)
    except (times.TimeError, OverflowError):
        return _NEVER


def _takes(node: Document) -> bool:
    metadata = node["metadata"]
    return (
        (metadata.get("annotations") or {}).get(TAKES_PODS) == "true"
        and "deletionTimestamp" not in metadata
        and not (node.get("spec") or {}).get("unschedulable")
    )


def bound(pod: Document, binding: Mapping[str, Any], now: datetime) -> Document:
    """Applies a Binding to a pod; the generation stays. Raises the errors of a kube-apiserver if the uid differs, or the pod is being
    deleted or already bound. An impossible target is 400 here, where a kube-apiserver answers 500."""
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
    """The pod with that nodeName, and with the condition PodScheduled."""
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
