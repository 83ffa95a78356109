"""Reads what a pod refers to. Only pods that refer to something cost a read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from sandpool.kube.api import Api
from sandpool.kube.errors import NotFound
from sandpool.model.kinds import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS
from sandpool.model.metadata import Object
from sandpool.model.resource import Resource
from sandpool.node.kubelet.references import NOTHING, Found, Kind, Reference

T = TypeVar("T", bound=Object)


async def look_up(api: Api, namespace: str, wanted: Iterable[Reference]) -> Found:
    """Consistent reads; what is not there is left out."""
    found: dict[Kind, dict[str, Any]] = {kind: {} for kind in Kind}
    resources: dict[Kind, Resource[Any]] = {
        Kind.CONFIG_MAP: CONFIG_MAPS,
        Kind.SECRET: SECRETS,
        Kind.CLAIM: PERSISTENT_VOLUME_CLAIMS,
    }
    for kind, name in sorted(wanted):
        object_ = await _get(api, resources[kind], name, namespace)
        if object_ is not None:
            found[kind][name] = object_
    if not any(found.values()):
        return NOTHING
    return Found(found[Kind.CONFIG_MAP], found[Kind.SECRET], found[Kind.CLAIM])


async def _get(api: Api, resource: Resource[T], name: str, namespace: str) -> T | None:
    if not name:
        return None
    try:
        return await api.get(resource, name, namespace)
    except NotFound:
        return None
