"""The scale subresource: reads and writes the replicas of an object as an autoscaling/v1 Scale.

A Scale has the object's name, uid and resourceVersion, so writes conflict like writes of the object.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.controlplane.admission.causes import undecodable_patch
from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.document import Document, decode, metadata_of, text_of
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import BadRequest
from sandpool.model.resource import Resource, Scale

_COPIED = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(resource: Resource[Any], document: Document) -> Document:
    """The Scale of an object. Absent replicas are 0; an absent selector is left out."""
    paths = _paths(resource)
    status: Document = {"replicas": _read(document, paths.status_replicas) or 0}
    selector = _read(document, paths.selector)
    if selector:
        status["selector"] = selector
    metadata = document["metadata"]
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: metadata[field] for field in _COPIED if field in metadata},
        "spec": {"replicas": _read(document, paths.spec_replicas) or 0},
        "status": status,
    }


def scale_record(resource: Resource[Any], record: Record) -> Record:
    """The stored object as its Scale."""
    value = msgspec.json.encode(scale_of(resource, decode(record)))
    return Record(record.key, record.revision, record.created, value)


def scaled(resource: Resource[Any], document: Document, scale: Document, name: str, *, patched: bool) -> Document:
    """The object with the Scale's replicas, and with the Scale's resourceVersion and uid, so that they are checked."""
    if scale.get("kind", "Scale") != "Scale" or scale.get("apiVersion", "autoscaling/v1") != "autoscaling/v1":
        raise BadRequest(f"a Scale of autoscaling/v1 is expected, not {scale.get('kind')} of {scale.get('apiVersion')}")
    metadata = metadata_of(scale)
    if text_of(metadata, "name") != name:
        raise refusals.name_mismatch(text_of(metadata, "name"), name)
    replicas = _read(scale, ".spec.replicas") or 0
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        why = "json: cannot unmarshal into Go struct field ScaleSpec.spec.replicas of type int32"
        raise undecodable_patch(scale, why) if patched else BadRequest(why)
    merged = dict(document["metadata"])
    merged["resourceVersion"] = text_of(metadata, "resourceVersion") or merged["resourceVersion"]
    merged["uid"] = text_of(metadata, "uid") or merged["uid"]
    section, field = _paths(resource).spec_replicas.lstrip(".").split(".")
    return {**document, "metadata": merged, section: {**(document.get(section) or {}), field: replicas}}


def _paths(resource: Resource[Any]) -> Scale:
    if resource.scale is None:
        raise refusals.no_subresource()
    return resource.scale


def _read(document: Document, path: str) -> Any:
    value: Any = document
    for step in path.lstrip(".").split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value
