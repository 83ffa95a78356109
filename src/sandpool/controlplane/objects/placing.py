"""The node that a new pod has from the start, where there is one.

A node says by an annotation that it takes pods which have none (`model/binding.py`), and by its lease that it is there. A pod that it certainly can take is created as if
its Binding had been made in the same write; one that it cannot take, or not by what is said here, is left to whoever binds.
What is read is durable, so an answer may be told.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.binding import placed
from sandpool.controlplane.objects.document import Document, decode
from sandpool.controlplane.objects.keys import key_of, prefix_of
from sandpool.controlplane.store.port import Store
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import Forbidden
from sandpool.model import kinds, times
from sandpool.model.binding import NODE_LEASES, TAKES_PODS

_NODES = prefix_of(kinds.NODES)
_NEVER = datetime.min.replace(tzinfo=UTC)


class Placing:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._record: Record | None = None  # of the node that took the last pod
        self._node: Document = {}
        self._lease: Record | None = None
        self._lives_until = _NEVER

    def runtime_refusal(self, pod: Document) -> Forbidden | None:
        """Why the pod may not have the runtime that it names: there must be a RuntimeClass, which is the operator's to make. What it costs
        by itself is for that class to say: a pod that says less would take more than its namespace's quota."""
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
        """The pod on its node, or as it is."""
        spec = pod.get("spec") or {}
        if spec.get("nodeName") or spec.get("schedulingGates") or spec.get("schedulerName") != "default-scheduler":
            return pod
        if not self._known() or not self._fits(spec):
            return pod
        name = self._node["metadata"]["name"]
        return placed(pod, name, now) if self._lives(name, now) else pod

    def _known(self) -> bool:
        """Whether there is a node that takes pods; it is remembered as long as it stays the same."""
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
        """Whether whoever runs the node's pods has said so lately: an earlier process may have left the node behind."""
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
        """Whether the node says that it has the runtime which this class stands for."""
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
