"""Decoded objects, each decoded once: what a write answers and what every watch in this process delivers is the same object."""

from __future__ import annotations

from typing import Any, TypeVar

from sandpool.controlplane.objects.recent import Recent
from sandpool.model import codec
from sandpool.model.metadata import Object, Revision
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)

_REMEMBERED = 4096
_REMEMBERED_BYTES = 16 * 1024 * 1024


class Typed:
    """The newest decoded objects, by type and revision. An entry counts only for the very bytes that it was made of."""

    def __init__(self) -> None:
        self._known: Recent[tuple[type, Revision], tuple[bytes, Any]] = Recent(_REMEMBERED, _REMEMBERED_BYTES)

    def object(self, resource: Resource[T], value: bytes, revision: Revision) -> T:
        key = (resource.type, revision)
        known = self._known.get(key)
        if known is not None and known[0] is value:
            found: T = known[1]
            return found
        made = codec.decode(resource, value)
        self._known.keep(key, (value, made), len(value))
        return made
