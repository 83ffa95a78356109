"""New objects whose rest was found good before: members of a pool differ in their metadata only.

A body without its metadata is known by its bytes, so what is found is what the same walk would make of it again. Only what
nothing at all was said about is kept, and only of kinds whose rules do not look at metadata.
"""

from __future__ import annotations

from typing import Any

import msgspec

MOST = 128  # bodies of one kind
LARGEST = 8 * 1024  # bytes

_encode = msgspec.json.Encoder().encode


class Approved:
    """The newest of them, of one kind. What it hands out is shared: nobody changes a document in place."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, dict[str, Any]] = {}

    def find(self, body: dict[str, Any]) -> tuple[bytes, dict[str, Any] | None]:
        """What a body is known by, and what it was made into; its metadata there means nothing."""
        said = _encode({**body, "metadata": None})
        return said, self._known.get(said)

    def keep(self, said: bytes, made: dict[str, Any]) -> None:
        if len(said) > LARGEST:
            return
        if len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        self._known[said] = {**made, "metadata": None}
