"""The objects that a pod's spec refers to, those that were found, and the cost of resolving them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from sandpool.base.errors import NodeError
from sandpool.base.turns import BYTES
from sandpool.model.core import ConfigMap, PersistentVolumeClaim, Secret
from sandpool.node.kubelet.pods import NodeContainer, NodePod, NodePodSpec
from sandpool.node.kubelet.sources import PodVolume


class Kind(StrEnum):
    CONFIG_MAP = "configmap"
    SECRET = "secret"  # noqa: S105  # the word, not one
    CLAIM = "persistentvolumeclaim"


class Reference(NamedTuple):
    """An object in the pod's namespace."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Found:
    """The objects that were found, by name. They contain secrets, so their repr is hidden."""

    config_maps: Mapping[str, ConfigMap] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, Secret] = field(default_factory=dict, repr=False)
    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict, repr=False)


class Unresolved(NodeError):
    """An object that the pod refers to is missing or invalid. `container` is the one that needs it; empty: all of them. The start is retried
    with a growing delay."""

    def __init__(self, reason: str, message: str, container: str = "") -> None:
        super().__init__(reason, message)
        self.container = container


NOTHING = Found()
CONFIG_ERROR = "CreateContainerConfigError"
FAILED_MOUNT = "FailedMount"


def references(spec: NodePodSpec) -> frozenset[Reference]:
    found = {Reference(Kind.SECRET, ref.name) for ref in spec.image_pull_secrets if ref.name}
    for container in spec.all_containers:
        found.update(_of_container(container))
    for volume in spec.volumes:
        found.update(_of_volume(volume))
    return frozenset(found)


def shown_references(spec: NodePodSpec) -> frozenset[Reference]:
    """The objects whose content is mounted as files."""
    shown = (reference for volume in spec.volumes if volume.shows for reference in _of_volume(volume))
    return frozenset(shown)


def _of_container(container: NodeContainer) -> Iterator[Reference]:
    for source in container.env_from:
        if source.config_map_ref is not None:
            yield Reference(Kind.CONFIG_MAP, source.config_map_ref.name)
        if source.secret_ref is not None:
            yield Reference(Kind.SECRET, source.secret_ref.name)
    for entry in container.env:
        if entry.value_from is not None:
            if entry.value_from.config_map_key_ref is not None:
                yield Reference(Kind.CONFIG_MAP, entry.value_from.config_map_key_ref.name)
            if entry.value_from.secret_key_ref is not None:
                yield Reference(Kind.SECRET, entry.value_from.secret_key_ref.name)


def _of_volume(volume: PodVolume) -> Iterator[Reference]:
    if volume.config_map is not None:
        yield Reference(Kind.CONFIG_MAP, volume.config_map.name)
    if volume.secret is not None:
        yield Reference(Kind.SECRET, volume.secret.secret_name)
    if volume.persistent_volume_claim is not None:
        yield Reference(Kind.CLAIM, volume.persistent_volume_claim.claim_name)
    for part in volume.projected.sources if volume.projected is not None else ():
        if part.config_map is not None:
            yield Reference(Kind.CONFIG_MAP, part.config_map.name)
        if part.secret is not None:
            yield Reference(Kind.SECRET, part.secret.name)


# The cost of resolving references

_EACH = 16  # overhead of an entry, in bytes


def heavy(pod: NodePod, found: Found) -> bool:
    """Whether resolving takes too long for the event loop. The estimate is an upper bound: it assumes that each reference reads everything
    that was found. A pod with a few variables and small files is not heavy."""
    spec = pod.spec
    references = len(spec.image_pull_secrets) + sum(map(_count, spec.volumes))
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


def _count(volume: PodVolume) -> int:
    sources = [volume.config_map, volume.secret, volume.downward_api]
    for part in volume.projected.sources if volume.projected is not None else ():
        sources += [part.config_map, part.secret, part.downward_api]
    return sum(max(1, len(source.items)) for source in sources if source is not None)


def _size(values: Mapping[str, str]) -> int:
    if len(values) * _EACH > BYTES:
        return BYTES + 1
    return sum([_EACH + len(key) + len(value) for key, value in values.items()])
