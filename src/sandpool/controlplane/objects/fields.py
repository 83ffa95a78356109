"""Field selectors: by which fields of which kind one may select, and what they are of an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sandpool.controlplane.objects.document import Document
from sandpool.controlplane.objects.strategy import strategy_of
from sandpool.kube.errors import BadRequest
from sandpool.model import kinds
from sandpool.model.resource import Resource

Read = Callable[[Document], str]


def _at(path: str) -> Read:
    steps = path.split(".")

    def read(document: Document) -> str:
        value: Any = document
        for step in steps:
            if not isinstance(value, dict):
                return ""
            value = value.get(step)
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)

    return read


def _flag(path: str) -> Read:
    """A boolean that is false when it is absent."""
    read = _at(path)
    return lambda document: read(document) or "false"


def _source(event: Document) -> str:
    return _at("source.component")(event) or _at("reportingComponent")(event)


def _paths(*paths: str) -> dict[str, Read]:
    return {path: _at(path) for path in paths}


_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

_BY_KIND: dict[Resource[Any], Mapping[str, Read]] = {
    kinds.PODS: {
        **_paths("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
        **_paths("status.phase", "status.podIP", "status.nominatedNodeName"),
        "spec.hostNetwork": _flag("spec.hostNetwork"),
    },
    kinds.EVENTS: {
        **_paths(*(f"involvedObject.{part}" for part in _INVOLVED), "reason", "reportingComponent", "type"),
        "source": _source,
    },
    kinds.NODES: {"spec.unschedulable": _flag("spec.unschedulable")},
    kinds.SECRETS: _paths("type"),
    kinds.NAMESPACES: _paths("status.phase"),
    kinds.SERVICES: _paths("spec.clusterIP", "spec.type"),
}


def reader_of(resource: Resource[Any], field: str) -> Read:
    """How to read that field of an object of this kind; 400 if it cannot be selected by."""
    own = _BY_KIND.get(resource)
    if field == "metadata.name" or (field == "metadata.namespace" and (own is None or resource.namespaced)):
        return _at(field)
    if own is not None and field in own:
        return own[field]
    if own is None and not strategy_of(resource).custom:
        raise BadRequest(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')
    raise BadRequest(f"field label not supported: {field}")
