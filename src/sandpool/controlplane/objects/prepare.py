"""What a body must say about itself, and what the cluster writes into a new object. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.document import Document, metadata_of, text_of
from sandpool.controlplane.objects.strategy import Strategy
from sandpool.kube.errors import BadRequest
from sandpool.model import kinds
from sandpool.model.resource import Resource
from sandpool.model.times import seconds


def check_names(resource: Resource[Any], metadata: Document, namespace: str, name: str) -> None:
    """What a body says about where it belongs must be what the request says."""
    if resource.namespaced and text_of(metadata, "namespace") not in ("", namespace):
        raise refusals.namespace_mismatch()
    if text_of(metadata, "name") != name:
        raise refusals.name_mismatch(text_of(metadata, "name"), name)


def settle_namespace(resource: Resource[Any], metadata: Document, namespace: str) -> str:
    """Puts the namespace of the request into a metadata of our own, and answers it; another one in it is refused. A
    request without one means that in the metadata."""
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return namespace
    given = text_of(metadata, "namespace")
    if not (given or namespace):
        raise refusals.namespace_required(resource)
    if namespace and given not in ("", namespace):
        raise refusals.namespace_mismatch()
    metadata["namespace"] = namespace or given
    return namespace or given


def check_kind(resource: Resource[Any], body: Document) -> None:
    """A body may leave out what it is, but not be something else."""
    version, kind = body.get("apiVersion"), body.get("kind")
    if version and version != resource.api_version:
        raise BadRequest(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    if kind and kind != resource.kind:
        raise BadRequest(f'{kind} in version "{resource.api_version}" cannot be handled as a {resource.kind}')


def stamp(strategy: Strategy, metadata: Document, *, uid: str, now: datetime) -> None:
    """What the cluster writes into the metadata of a new object, which is its own, after admission."""
    metadata["uid"] = uid
    metadata["creationTimestamp"] = seconds(now)
    if strategy.generation:
        metadata["generation"] = 1


def check_subresource(resource: Resource[Any], subresource: str) -> None:
    served = (
        not subresource
        or (subresource == "status" and resource.has_status)
        or (subresource == "scale" and resource.scale is not None)
        or (subresource == "finalize" and resource == kinds.NAMESPACES)
    )
    if not served:
        raise refusals.no_subresource()


def check_uid(resource: Resource[Any], name: str, old: Document, body: Document) -> None:
    """A PUT that names a uid means that object and no other of its name."""
    asked = text_of(metadata_of(body), "uid")
    if asked and asked != old["metadata"]["uid"]:
        raise refusals.other_uid(resource, name, asked, old["metadata"]["uid"])
