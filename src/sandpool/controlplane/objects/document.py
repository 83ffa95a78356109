"""Objects as JSON documents: reads the metadata fields that the server needs, and encodes the bytes that are stored.

A decoded document is never changed in place, except for `resourceVersion` in a metadata dict that was built for this
write and is not shared.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sandpool.controlplane.objects import refusals
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import BadRequest, RequestTooLarge
from sandpool.model.metadata import NO_REVISION, Revision

Document = dict[str, Any]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_BOUND = 2**64
_LONGEST = 20  # digits: Python refuses to parse numbers with thousands of digits

MAX_BYTES = 3 * 1024 * 1024
"""The limit of a request body, and of an object that grows by patches."""


class Malformed(BadRequest):
    """Metadata of the wrong type. Callers run admission, which raises the message of a kube-apiserver; this error is the fallback."""


def decode(record: Record) -> Document:
    document: Document = _decode(record.value)
    return document


def metadata_of(document: Document) -> Document:
    """The metadata, empty if there is none."""
    metadata = document.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise Malformed("metadata: must be an object")
    return metadata


def text_of(metadata: Document, field: str) -> str:
    value = metadata.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Malformed(f"metadata.{field}: must be a string")
    return value


def finalizers_of(metadata: Document) -> list[str]:
    value = metadata.get("finalizers")
    if not value:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Malformed("metadata.finalizers: must be a list of strings")
    return value


def revision_of(metadata: Document) -> Revision:
    return parse_revision(text_of(metadata, "resourceVersion"))


def parse_revision(text: str) -> Revision:
    if not text:
        return NO_REVISION
    if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST or int(text) >= _BOUND:
        raise refusals.revision_unreadable(text)
    return Revision(int(text))


def headed(api_version: str, kind: str, metadata: Document, body: Document) -> Document:
    """A document whose first fields are apiVersion, kind and metadata, as people expect."""
    document: Document = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    for field, value in body.items():
        if field not in document:
            document[field] = value
    return document


def encoded_at(document: Document, limit: int | None, revision: Revision) -> bytes:
    """Encodes the bytes of a write and sets resourceVersion, so the metadata dict must not be shared. `limit` is None for what
    the server itself adds, such as a deletionTimestamp: that must never be refused for its size."""
    document["metadata"]["resourceVersion"] = str(revision)
    value = _encode(document)
    if limit is not None and len(value) > limit:
        raise RequestTooLarge(f"Request entity too large: limit is {limit}")
    return value


def owning(document: Document) -> Document:
    """A shallow copy whose metadata dict is copied too, so that the caller can change it."""
    return {**document, "metadata": dict(document.get("metadata") or {})}


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON. 1, 1.0 and True are equal in Python, but not in JSON, so equal values are compared as bytes too."""
    return one is other or (one == other and _encode_sorted(one) == _encode_sorted(other))


def name_in(body: Document) -> str:
    """The name in an object that was not validated yet; empty if there is none."""
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
