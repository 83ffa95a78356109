"""What a kubelet's cache remembers of pods: those of one template share what they have in common.

That is the spec, and of the status everything but the address and the containers' own ids. Pods of a pool become ready together, so most
of their times are the same, too. Objects are never changed in place, so nobody notices that they share.
"""

from __future__ import annotations

from sandpool.model.labels import TEMPLATE_REF_HASH
from sandpool.node.kubelet.pods import Json, NodePod

_MOST = 1024  # templates


class Alike:
    def __init__(self) -> None:
        self._examples: dict[tuple[str, str], NodePod] = {}  # of each template, the last pod

    def __call__(self, pod: NodePod) -> NodePod:
        """The same pod, which shares with others what is equal."""
        mark = pod.metadata.labels.get(TEMPLATE_REF_HASH)
        if mark is None:
            return pod
        place = (pod.metadata.namespace, mark)
        example = self._examples.get(place)
        if example is None or example.spec != pod.spec:
            if len(self._examples) >= _MOST:
                self._examples.clear()
            self._examples[place] = pod
            return pod
        if not pod.acknowledged:  # its status will be another one soon
            return NodePod(metadata=pod.metadata, spec=example.spec, status=pod.status)
        kept = NodePod(metadata=pod.metadata, spec=example.spec, status=shared(pod.status, example.status))
        self._examples[place] = kept
        return kept


def shared(status: Json, example: Json) -> Json:
    """An equal status that has the example's parts wherever they are equal."""
    found = _alike(status, example)
    containers, others = found.get("containerStatuses"), example.get("containerStatuses")
    if containers and others and containers is not others and len(containers) == len(others):
        found["containerStatuses"] = [_alike(one, other) for one, other in zip(containers, others, strict=True)]
    return found


def _alike(one: Json, other: Json) -> Json:
    get = other.get
    return {name: known if (known := get(name)) == value else value for name, value in one.items()}
