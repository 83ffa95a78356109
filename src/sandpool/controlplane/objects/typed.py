"""A cache of decoded objects: the result of a write and every watch in this process share one decoded object."""

from __future__ import annotations

from typing import Any, TypeVar

from sandpool.controlplane.objects.recent import Recent, decoded_size
from sandpool.model import codec
from sandpool.model.metadata import Object, Revision
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)

REMEMBERED = 4096
_REMEMBERED_BYTES = 64 * 1024 * 1024  # of memory


class Typed:
    """The most recently decoded objects, by type and revision. An entry is used only for the same bytes object that it was decoded from."""

    def __init__(self) -> None:
        self._known: Recent[tuple[type, Revision], tuple[bytes, Any]] = Recent(REMEMBERED, _REMEMBERED_BYTES)

    def object(self, resource: Resource[T], value: bytes, revision: Revision) -> T:
        key = (resource.type, revision)
        known = self._known.get(key)
        if known is not None and known[0] is value:
            found: T = known[1]
            return found
        made = codec.decode(resource, value)
        self._known.keep(key, (value, made), decoded_size(value))
        return made
