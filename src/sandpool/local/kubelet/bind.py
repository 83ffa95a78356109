"""Placing a pod on a node: whether it may be, and the request that does it.

A pod's node is no field that an update may change: it is set once, by a Binding that is posted to the pod's `binding`
subresource. The port has no verb for subresources, but the path of one is the path of a collection like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sandpool.local.kubelet.pods import NodePod
from sandpool.model.kinds import PODS
from sandpool.model.metadata import Metadata, Model
from sandpool.model.resource import Resource

KIND = "Binding"


class Binding(Model, frozen=True):
    """What a server answers is a Status; nothing of it is read."""

    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = KIND

    metadata: Metadata = Metadata()


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What placing depends on."""

    name: str
    labels: Mapping[str, str]
    closed: bool = False  # cordoned


def why_not_here(pod: NodePod, node: NodeFacts) -> tuple[str, str] | None:
    """Reason and message if the pod may not run on the only node there is."""
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    if gates:
        return "SchedulingGated", f"Scheduling is blocked due to non-empty scheduling gates: {', '.join(gates)}"
    missing = [f"{name}={value}" for name, value in pod.spec.node_selector.items() if node.labels.get(name) != value]
    if missing:
        return (
            "Unschedulable",
            f"node {node.name} lacks what spec.nodeSelector asks for ({', '.join(missing)}); label the node or change it",
        )
    if node.closed:
        return "Unschedulable", f"node {node.name} is cordoned; run kubectl uncordon {node.name}"
    return None


@dataclass(frozen=True, slots=True)
class BindingResource(Resource[Binding]):
    """The `binding` subresource of one pod. Its plural is the same for all pods, because others count by it."""

    pod: str = field(default="", compare=False)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        return PODS.path(namespace, self.pod, "binding")


def binding_resource(pod: str) -> Resource[Binding]:
    return BindingResource("", "v1", "pods/binding", KIND, Binding, pod=pod)


def binding_body(pod: NodePod, node: str) -> dict[str, Any]:
    """It names the uid, so that a pod re-created under the same name is not meant."""
    meta = pod.metadata
    return {
        "apiVersion": "v1",
        "kind": KIND,
        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
