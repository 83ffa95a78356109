"""The request that binds a pod to a node.

An update cannot set a pod's node: that happens once, by a Binding posted to the pod's `binding` subresource. `kube.Api` has no verb for
posting to a subresource, so `BindingResource` makes it look like a collection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sandpool.model.kinds import PODS
from sandpool.model.metadata import Metadata, Model
from sandpool.model.resource import Resource

KIND = "Binding"
TAKES_PODS = "sandpool.dev/takes-pods"
"""An annotation of a node. `true` means that a pod that requests no other node may be created on it, without a Binding."""

NODE_LEASES = "kube-node-lease"
"""The namespace of node heartbeat leases."""


class Binding(Model, frozen=True):
    """A Binding. The server answers with a Status, which is not read."""

    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = KIND

    metadata: Metadata = Metadata()


@dataclass(frozen=True, slots=True)
class BindingResource(Resource[Binding]):
    """The `binding` subresource of one pod. Its plural is the same for all pods, because telemetry is labelled by it."""

    pod: str = field(default="", compare=False)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        return PODS.path(namespace, self.pod, "binding")


def binding_resource(pod: str) -> Resource[Binding]:
    return BindingResource("", "v1", "pods/binding", KIND, Binding, pod=pod)


def binding_body(pod: Metadata, node: str) -> dict[str, Any]:
    """The body of a Binding. It has the pod's uid, so it fails for a pod re-created under the same name."""
    return {
        "apiVersion": "v1",
        "kind": KIND,
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
