"""Content negotiation: an object as JSON, as a Table or as PartialObjectMetadata, by the Accept header. Pure.

Responses are never protobuf. Clients name protobuf first and JSON second, so the first entry that can be served counts.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Final

from sandpool.kube.errors import NotAcceptable

MOST_ENTRIES: Final = 32
"""How many entries of an Accept header are read. Clients send three or four, and each costs as much as parsing a short request."""
MOST_PARAMETERS: Final = 16


class Form(Enum):
    """The form of objects in a response."""

    OBJECT = "object"
    TABLE = "Table"
    PARTIAL = "PartialObjectMetadata"
    PARTIAL_LIST = "PartialObjectMetadataList"


class Media:
    """One entry of an Accept header: a media type, its parameters and its quality."""

    __slots__ = ("parameters", "quality", "type")

    def __init__(self, entry: str) -> None:
        head, *rest = entry.split(";", MOST_PARAMETERS)[:MOST_PARAMETERS]
        self.type = head.strip().lower()
        pairs = (part.partition("=") for part in rest)
        self.parameters = {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}
        try:
            self.quality = float(self.parameters.pop("q", "1"))
        except ValueError:
            self.quality = 0.0

    @property
    def json(self) -> bool:
        return self.type in {"application/json", "application/*", "*/*"}


_FORMS: Final = {form.value: form for form in (Form.TABLE, Form.PARTIAL, Form.PARTIAL_LIST)}
_PLAIN: Final = frozenset({None, b"", b"application/json", b"*/*", b"application/json, */*"})
ACCEPTED: Final = "application/json"


def wanted(accept: bytes) -> list[Media]:
    """The first entries of an Accept header, by quality; among equals in the order given."""
    entries = [Media(part) for part in accept.decode("latin-1").split(",", MOST_ENTRIES)[:MOST_ENTRIES]]
    return sorted((entry for entry in entries if entry.quality > 0), key=lambda entry: -entry.quality)


def form_of(accept: bytes | None) -> Form:
    """The form in which the client wants objects. Raises NotAcceptable."""
    return Form.OBJECT if accept in _PLAIN else _negotiated(accept or b"")


@lru_cache(maxsize=256)
def _negotiated(accept: bytes) -> Form:
    for entry in wanted(accept):
        if not entry.json:
            continue
        target = entry.parameters.get("as")
        if target is None:
            return Form.OBJECT
        group, version = entry.parameters.get("g"), entry.parameters.get("v")
        if (
            target in _FORMS
            and group == "meta.k8s.io"
            and version in {"v1", "v1beta1"}
            and (version == "v1" or target != "Table")
        ):
            return _FORMS[target]
    raise not_acceptable()


def not_acceptable() -> NotAcceptable:
    return NotAcceptable(f"only the following media types are accepted: {ACCEPTED}")


def media_type(header: bytes | None) -> str:
    """The bare media type of a Content-Type header, without its parameters."""
    if header == b"application/json":  # the usual case
        return "application/json"
    return header.partition(b";")[0].strip().lower().decode("latin-1") if header else ""
