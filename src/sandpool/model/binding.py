"""Placing a pod on a node, as a request.

A pod's node is no field that an update may change: it is set once, by a Binding that is posted to the pod's `binding`
subresource. The port has no verb for subresources, but the path of one is the path of a collection like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sandpool.model.kinds import PODS
from sandpool.model.metadata import Metadata, Model
from sandpool.model.resource import Resource

KIND = "Binding"
TAKES_PODS = "sandpool.dev/takes-pods"
"""An annotation of a node, `true`: a pod that asks for no other may be created on it, without a Binding."""

NODE_LEASES = "kube-node-lease"
"""The namespace of the leases by which nodes say that they are there."""


class Binding(Model, frozen=True):
    """What a server answers is a Status; nothing of it is read."""

    api_version: ClassVar[str] = "v1"
    kind: ClassVar[str] = KIND

    metadata: Metadata = Metadata()


@dataclass(frozen=True, slots=True)
class BindingResource(Resource[Binding]):
    """The `binding` subresource of one pod. Its plural is the same for all pods, because others count by it."""

    pod: str = field(default="", compare=False)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        return PODS.path(namespace, self.pod, "binding")


def binding_resource(pod: str) -> Resource[Binding]:
    return BindingResource("", "v1", "pods/binding", KIND, Binding, pod=pod)


def binding_body(pod: Metadata, node: str) -> dict[str, Any]:
    """It names the uid, so that a pod re-created under the same name is not meant."""
    return {
        "apiVersion": "v1",
        "kind": KIND,
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
