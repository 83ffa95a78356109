"""Reads the objects that a pod refers to. A pod without references costs no read; memory per pod is bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from sandpool.kube.api import Api
from sandpool.kube.errors import NotFound
from sandpool.model.core import ConfigMap, Secret
from sandpool.model.kinds import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS
from sandpool.model.metadata import Object
from sandpool.model.resource import Resource
from sandpool.node.kubelet.references import FAILED_MOUNT, NOTHING, Found, Kind, Reference, Unresolved

T = TypeVar("T", bound=Object)
MOST = 64 << 20
"""Maximum bytes, as stored, of the ConfigMaps and Secrets of one pod: twice the limit of its files."""
_EACH = 100
"""Overhead of an entry in bytes, about what it takes in memory."""


async def look_up(api: Api, namespace: str, wanted: Iterable[Reference]) -> Found:
    """Reads the objects consistently; missing ones are left out. Raises Unresolved if they are too large together."""
    left = MOST
    found: dict[Kind, dict[str, Any]] = {kind: {} for kind in Kind}
    resources: dict[Kind, Resource[Any]] = {
        Kind.CONFIG_MAP: CONFIG_MAPS,
        Kind.SECRET: SECRETS,
        Kind.CLAIM: PERSISTENT_VOLUME_CLAIMS,
    }
    for kind, name in sorted(wanted):
        object_ = await find(api, resources[kind], name, namespace)
        if object_ is not None:
            left -= _size(object_)
            if left < 0:
                raise Unresolved(
                    FAILED_MOUNT,
                    f"the ConfigMaps and Secrets of this pod take more than {MOST} bytes together; refer to less",
                )
            found[kind][name] = object_
    if not any(found.values()):
        return NOTHING
    return Found(found[Kind.CONFIG_MAP], found[Kind.SECRET], found[Kind.CLAIM])


def _size(object_: Object) -> int:
    match object_:
        case ConfigMap(data=data, binary_data=binary):
            return _entries(data) + _entries(binary)
        case Secret(data=data):
            return _entries(data)
    return 0


def _entries(data: Mapping[str, str]) -> int:
    return len(data) * _EACH + sum(map(len, data)) + sum(map(len, data.values()))


async def find(api: Api, resource: Resource[T], name: str, namespace: str) -> T | None:
    if not name:
        return None
    try:
        return await api.get(resource, name, namespace)
    except NotFound:
        return None
