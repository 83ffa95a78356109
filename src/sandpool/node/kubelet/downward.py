"""What a pod may know of itself: fields of its object, and its resources. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandpool.model import quantities
from sandpool.node.backend import ADDRESS
from sandpool.node.kubelet.pods import NodeContainer, NodePod
from sandpool.node.kubelet.sources import ResourceFieldRef

_ONE_OF = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Here:
    """What a pod may know of its node."""

    node: str = ""
    address: str = ""
    capacity: Mapping[str, str] = field(default_factory=dict)


class NoSuchField(ValueError):
    """The message names the field and says which there are."""


def field_value(pod: NodePod, path: str, here: Here) -> str:
    """A field as text. The pod's own address is not known yet: a mark stands for it."""
    meta = pod.metadata
    plain = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "metadata.labels": _lines(meta.labels),
        "metadata.annotations": _lines(meta.annotations),
        "spec.nodeName": here.node,
        "spec.serviceAccountName": pod.spec.service_account_name or "default",
        "status.hostIP": here.address,
        "status.hostIPs": here.address,
        "status.podIP": ADDRESS,
        "status.podIPs": ADDRESS,
    }
    if path in plain:
        return plain[path]
    one = _ONE_OF.fullmatch(path)
    if one is None:
        raise NoSuchField(
            f"fieldPath {path!r} is not a field that a pod may refer to; choose one of {', '.join(sorted(plain))}"
        )
    return (meta.labels if one[1] == "labels" else meta.annotations).get(one[2], "")


def resource_value(pod: NodePod, container: NodeContainer, ref: ResourceFieldRef, here: Here) -> str:
    """Limits that are not set are what the node has."""
    named = [one for one in pod.spec.all_containers if one.name == ref.container_name] if ref.container_name else []
    if ref.container_name and not named:
        raise NoSuchField(f"resourceFieldRef names container {ref.container_name!r}, and the pod has none of that name")
    resources = (named[0] if named else container).resources
    kind, _, name = ref.resource.partition(".")
    if kind not in ("limits", "requests") or not name:
        raise NoSuchField(
            f"resourceFieldRef.resource {ref.resource!r} is not one; write limits.memory, requests.cpu or the like"
        )
    text = resources.requests.get(name, "0") if kind == "requests" else resources.limits.get(name)
    amount = quantities.parse(here.capacity.get(name, "0") if text is None else text)
    divisor = quantities.parse(ref.divisor)
    if not divisor.nanos:
        divisor = quantities.parse("1")
    return str(-(-amount.nanos // divisor.nanos))


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(values.items()))
