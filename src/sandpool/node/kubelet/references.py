"""Which objects a pod's spec refers to, and what was found of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from sandpool.base.errors import NodeError
from sandpool.model.core import ConfigMap, PersistentVolumeClaim, Secret
from sandpool.node.kubelet.pods import NodeContainer, NodePodSpec
from sandpool.node.kubelet.sources import PodVolume


class Kind(StrEnum):
    CONFIG_MAP = "configmap"
    SECRET = "secret"  # noqa: S105  # the word, not one
    CLAIM = "persistentvolumeclaim"


class Reference(NamedTuple):
    """Within the pod's own namespace."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Found:
    """What there is of it, by name. It holds secrets and shows nothing."""

    config_maps: Mapping[str, ConfigMap] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, Secret] = field(default_factory=dict, repr=False)
    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict, repr=False)


class Unresolved(NodeError):
    """Something that the pod refers to is not there, or not as it should be. `container` is the one that needs it; empty: all
    of them. It is looked for again, later each time."""

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
    """The objects whose content is shown as files."""
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
