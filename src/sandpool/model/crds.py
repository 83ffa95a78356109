"""Generates the CustomResourceDefinitions of our four kinds from their types. `deploy/crds` contains the output."""

from __future__ import annotations

from typing import Any

import yaml

from sandpool.model.kinds import OURS
from sandpool.model.resource import Column, Resource
from sandpool.model.schemas import structural


def crds() -> list[dict[str, Any]]:
    """One definition for each kind, ready for `kubectl apply`."""
    return [crd(resource) for resource in OURS]


def crd(resource: Resource[Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.group_resource},
        "spec": {
            "group": resource.group,
            "names": _names(resource),
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [_version(resource)],
        },
    }


def crds_yaml() -> str:
    """All CustomResourceDefinitions as one YAML stream."""
    return "".join(f"---\n{to_yaml(definition)}" for definition in crds())


def to_yaml(definition: dict[str, Any]) -> str:
    return yaml.dump(definition, Dumper=_Plain, sort_keys=False, width=120)


def _names(resource: Resource[Any]) -> dict[str, Any]:
    names: dict[str, Any] = {
        "kind": resource.kind,
        "listKind": resource.kind + "List",
        "plural": resource.plural,
        "singular": resource.singular,
    }
    if resource.short_names:
        names["shortNames"] = list(resource.short_names)
    if resource.categories:
        names["categories"] = list(resource.categories)
    return names


def _version(resource: Resource[Any]) -> dict[str, Any]:
    version: dict[str, Any] = {"name": resource.version, "served": True, "storage": True}
    if resource.columns:
        version["additionalPrinterColumns"] = [_column(column) for column in resource.columns]
    subresources: dict[str, Any] = {}
    if resource.has_status:
        subresources["status"] = {}
    if resource.scale:
        subresources["scale"] = {
            "specReplicasPath": resource.scale.spec_replicas,
            "statusReplicasPath": resource.scale.status_replicas,
            "labelSelectorPath": resource.scale.selector,
        }
    if subresources:
        version["subresources"] = subresources
    version["schema"] = {"openAPIV3Schema": _schema(resource)}
    return version


def _schema(resource: Resource[Any]) -> dict[str, Any]:
    """The schema without metadata: a CRD must not specify it, because the server does."""
    schema = dict(structural(resource))
    schema["properties"] = schema["properties"] | {"metadata": {"type": "object"}}
    return schema


def _column(column: Column) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        shown["description"] = column.description
    if column.priority:
        shown["priority"] = column.priority
    return shown


class _Plain(yaml.CSafeDumper):
    """Writes shared parts out in full instead of as YAML anchors, which some Kubernetes tools do not support."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
