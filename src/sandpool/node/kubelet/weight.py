"""How much work it is to resolve what a pod refers to: whether that can be done at once, or must not be done on the event loop. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sandpool.base.turns import BYTES
from sandpool.node.kubelet.pods import NodePod
from sandpool.node.kubelet.references import Found
from sandpool.node.kubelet.sources import PodVolume

_EACH = 16  # bytes that an entry is worth besides what is in it


def heavy(pod: NodePod, found: Found) -> bool:
    """Never too low: as if each reference went through all that there is. A pod with a few variables and small files is not."""
    spec = pod.spec
    references = len(spec.image_pull_secrets) + sum(map(_references, spec.volumes))
    size = references * _EACH
    for container in spec.all_containers:
        references += len(container.env_from) + sum([entry.value_from is not None for entry in container.env])
        size += sum([_EACH + len(entry.value) for entry in container.env])
    if not references:
        return size > BYTES
    there = _size(pod.metadata.labels) + _size(pod.metadata.annotations)
    there += sum(_size(one.data) + _size(one.binary_data) for one in found.config_maps.values())
    there += sum(_size(one.data) for one in found.secrets.values())
    return size + references * there > BYTES


def _references(volume: PodVolume) -> int:
    sources = [volume.config_map, volume.secret, volume.downward_api]
    for part in volume.projected.sources if volume.projected is not None else ():
        sources += [part.config_map, part.secret, part.downward_api]
    return sum(max(1, len(source.items)) for source in sources if source is not None)


def _size(values: Mapping[str, str]) -> int:
    if len(values) * _EACH > BYTES:
        return BYTES + 1
    return sum([_EACH + len(key) + len(value) for key, value in values.items()])
