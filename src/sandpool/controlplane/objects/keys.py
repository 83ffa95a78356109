"""The key of an object in the store: one prefix per resource, then namespace and name."""

from __future__ import annotations

from typing import Any

from sandpool.model import kinds
from sandpool.model.resource import Resource


def prefix_of(resource: Resource[Any], namespace: str = "") -> str:
    """The prefix of all objects of a kind, or of those in one namespace."""
    prefix = f"{resource.group or 'core'}/{resource.plural}/"
    return f"{prefix}{namespace}/" if namespace and resource.namespaced else prefix


def key_of(resource: Resource[Any], namespace: str, name: str) -> str:
    if resource.namespaced:
        return f"{resource.group or 'core'}/{resource.plural}/{namespace}/{name}"
    return f"{resource.group or 'core'}/{resource.plural}/{name}"


_SERVED: dict[tuple[str, str], Resource[Any]] = {
    (resource.group or "core", resource.plural): resource for resource in kinds.ALL
}


def parse_key(key: str) -> tuple[Resource[Any], str, str] | None:
    """The resource, namespace and name of a key; None for a kind that is not served."""
    group, plural, rest = key.split("/", 2)
    resource = _SERVED.get((group, plural))
    if resource is None:
        return None
    namespace, _, name = rest.rpartition("/")
    return resource, namespace, name
