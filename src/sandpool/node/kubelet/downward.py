"""The downward API: fields of a pod and its resources, for its environment and volumes. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sandpool.model import quantities
from sandpool.node.backend import ADDRESS
from sandpool.node.kubelet.pods import NodeContainer, NodePod
from sandpool.node.kubelet.sources import ResourceFieldRef

_ONE_OF = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What the downward API exposes about the node."""

    node: str = ""
    address: str = ""
    capacity: Mapping[str, str] = field(default_factory=dict)


class NoSuchField(ValueError):
    """The field is not supported. The message names it and lists those that are."""


class Fields:
    """The fields of one pod. The text of all labels and all annotations is built once, however often the pod refers to it."""

    def __init__(self, pod: NodePod, node_info: NodeInfo) -> None:
        self._pod = pod
        self._node_info = node_info
        self._texts: dict[str, str] = {}
        self._files: dict[str, bytes] = {}

    def value(self, path: str) -> str:
        """A field as text. The pod's own address is not known yet, so a placeholder is returned for it."""
        known = self._texts.get(path)
        if known is not None:
            return known
        plain = _PLAIN.get(path)
        if plain is not None:
            made = self._texts[path] = plain(self._pod, self._node_info)
            return made
        one = _ONE_OF.fullmatch(path)
        if one is None:
            raise NoSuchField(
                f"fieldPath {path!r} is not a field that a pod may refer to; choose one of {', '.join(sorted(_PLAIN))}"
            )
        meta = self._pod.metadata
        return (meta.labels if one[1] == "labels" else meta.annotations).get(one[2], "")

    def file(self, path: str) -> bytes:
        """A field as the content of a file."""
        known = self._files.get(path)
        if known is None:
            known = self._files[path] = self.value(path).encode()
        return known

    def resource(self, container: NodeContainer, ref: ResourceFieldRef) -> str:
        """A limit or request. A limit that is not set is the node's capacity, as in Kubernetes."""
        named = container if not ref.container_name else self._named(ref.container_name)
        kind, _, name = ref.resource.partition(".")
        if kind not in ("limits", "requests") or not name:
            raise NoSuchField(
                f"resourceFieldRef.resource {ref.resource!r} is not one; write limits.memory, requests.cpu or the like"
            )
        resources = named.resources
        text = resources.requests.get(name, "0") if kind == "requests" else resources.limits.get(name)
        amount = quantities.parse(self._node_info.capacity.get(name, "0") if text is None else text)
        divisor = quantities.parse(ref.divisor)
        if not divisor.nanos:
            divisor = quantities.parse("1")
        return str(-(-amount.nanos // divisor.nanos))

    def _named(self, name: str) -> NodeContainer:
        for one in self._pod.spec.all_containers:
            if one.name == name:
                return one
        raise NoSuchField(f"resourceFieldRef names container {name!r}, and the pod has none of that name")


def lines(values: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(values.items()))


_PLAIN: Mapping[str, Callable[[NodePod, NodeInfo], str]] = {
    "metadata.name": lambda pod, node_info: pod.metadata.name,
    "metadata.namespace": lambda pod, node_info: pod.metadata.namespace,
    "metadata.uid": lambda pod, node_info: pod.metadata.uid,
    "metadata.labels": lambda pod, node_info: lines(pod.metadata.labels),
    "metadata.annotations": lambda pod, node_info: lines(pod.metadata.annotations),
    "spec.nodeName": lambda pod, node_info: node_info.node,
    "spec.serviceAccountName": lambda pod, node_info: pod.spec.service_account_name or "default",
    "status.hostIP": lambda pod, node_info: node_info.address,
    "status.hostIPs": lambda pod, node_info: node_info.address,
    "status.podIP": lambda pod, node_info: ADDRESS,
    "status.podIPs": lambda pod, node_info: ADDRESS,
}
