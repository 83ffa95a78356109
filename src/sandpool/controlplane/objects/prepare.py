"""Checks name, namespace and kind of a request body, and fills in the metadata of a new object: generated name, uid, owner references. Pure."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import msgspec

from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.document import Document, metadata_of, text_of
from sandpool.controlplane.objects.strategy import Strategy
from sandpool.kube.errors import BadRequest
from sandpool.model import kinds
from sandpool.model.resource import Resource
from sandpool.model.times import seconds


def check_names(resource: Resource[Any], metadata: Document, namespace: str, name: str) -> None:
    """Checks that name and namespace in the body are those of the request."""
    if resource.namespaced and text_of(metadata, "namespace") not in ("", namespace):
        raise refusals.namespace_mismatch()
    if text_of(metadata, "name") != name:
        raise refusals.name_mismatch(text_of(metadata, "name"), name)


def settle_namespace(resource: Resource[Any], metadata: Document, namespace: str) -> str:
    """Sets metadata.namespace in place and returns it. A namespace that differs from that of the request is refused. If
    the request has none, that of the metadata counts."""
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
    """Checks that apiVersion and kind are those of the resource, or absent."""
    version, kind = body.get("apiVersion"), body.get("kind")
    if version and version != resource.api_version:
        raise BadRequest(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    if kind and kind != resource.kind:
        raise BadRequest(f'{kind} in version "{resource.api_version}" cannot be handled as a {resource.kind}')


def stamp(strategy: Strategy, metadata: Document, *, uid: str, now: datetime) -> None:
    """Sets uid, creationTimestamp and generation of a new object in place, after admission."""
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
    """Raises Conflict if a PUT names the uid of another object."""
    asked = text_of(metadata_of(body), "uid")
    if asked and asked != old["metadata"]["uid"]:
        raise refusals.other_uid(resource, name, asked, old["metadata"]["uid"])


_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LENGTH = 5
_LONGEST = 63 - _LENGTH
ATTEMPTS = 8

_random = random.SystemRandom()


def random_suffix() -> str:
    return "".join(_random.choices(_ALPHABET, k=_LENGTH))


def generated(prefix: str, suffix: str) -> str:
    return prefix[:_LONGEST] + suffix


_WARNING = (
    ".metadata.ownerReferences contains duplicate entries{}; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}"
)
_encode = msgspec.json.Encoder(order="sorted").encode
_LATE = " after mutating admission happens"


def settle_owners(metadata: Document, *, patched: bool = False) -> tuple[str, ...]:
    """Removes duplicate owner references in place. Returns a warning if there were any."""
    references = metadata.get("ownerReferences")
    if not references or len(references) < 2:
        return ()
    kept: dict[bytes, Any] = {}  # by their encoded bytes: there may be thousands, too many to compare pairwise
    repeated: list[str] = []
    for reference in references:
        said = _encode(reference)
        if said in kept:
            repeated.append(reference["uid"])
        else:
            kept[said] = reference
    if not repeated:
        return ()
    metadata["ownerReferences"] = list(kept.values())
    return (_WARNING.format(_LATE if patched else "", ", ".join(repeated)),)
