"""Objects as JSON documents: reading what the rules need, and making the bytes that are stored.

A decoded document is never changed in place, except for `resourceVersion` in a metadata that was built for this very
write and that nobody else holds.
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
_LONGEST = 20  # digits: Python refuses to read numbers of thousands of them

MAX_BYTES = 3 * 1024 * 1024
"""No object is larger, however many patches make it grow: it is what a request may hold."""


class Malformed(BadRequest):
    """Metadata that cannot be read. Admission has the words of a server for it; these are the last resort."""


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
    """A document that begins with what it is, as people expect to read it."""
    document: Document = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    for field, value in body.items():
        if field not in document:
            document[field] = value
    return document


def encoded_at(document: Document, limit: int | None, revision: Revision) -> bytes:
    """The bytes of a write. The document's metadata must be its own: the revision is put into it. Without a limit: what
    the server itself adds (the time of a deletion, one more digit of the revision) must never be too much."""
    document["metadata"]["resourceVersion"] = str(revision)
    value = _encode(document)
    if limit is not None and len(value) > limit:
        raise RequestTooLarge(f"Request entity too large: limit is {limit}")
    return value


def owning(document: Document) -> Document:
    """The same document with a metadata of its own, to be changed by the caller."""
    return {**document, "metadata": dict(document.get("metadata") or {})}


def same(one: Any, other: Any) -> bool:
    """Equal as JSON. Python calls 1, 1.0 and True equal, JSON does not; what looks equal is compared as bytes."""
    return one is other or (one == other and _encode_sorted(one) == _encode_sorted(other))
