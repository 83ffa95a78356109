"""The decoded content of the ConfigMaps and Secrets that a pod refers to. Pure.

Content is decoded once, when it is first needed: a pod object of two kilobytes can name one large Secret hundreds of times, and all of
these references share the same bytes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from sandpool.node.kubelet.references import CONFIG_ERROR, FAILED_MOUNT, Found, Kind, Reference, Unresolved


class Contents:
    def __init__(self, found: Found) -> None:
        self.found = found
        self._bytes: dict[tuple[Kind, str, str], bytes | None] = {}  # None: not base64
        self._texts: dict[tuple[str, str], str] = {}
        self._sorted: dict[Reference, Sequence[tuple[str, str]]] = {}

    def entries(self, what: Reference) -> Sequence[tuple[str, str]] | None:
        """The entries of an object sorted by key, as they are stored; None if there is no such object."""
        known = self._sorted.get(what)
        if known is None:
            there = (self.found.secrets if what.kind is Kind.SECRET else self.found.config_maps).get(what.name)
            if there is None:
                return None
            known = self._sorted[what] = sorted(there.data.items())
        return known

    def secret(self, name: str, key: str) -> bytes:
        """The decoded value of a key. The Secret and the key must exist."""
        data = self._decoded(Kind.SECRET, name, key, self.found.secrets[name].data)
        if data is None:
            raise Unresolved(CONFIG_ERROR, f'key {key} of secret "{name}" is not base64; write it with stringData')
        return data

    def secret_text(self, name: str, key: str) -> str:
        """The same value as text, for an environment variable."""
        known = self._texts.get((name, key))
        if known is None:
            known = self._texts[name, key] = self.secret(name, key).decode("utf-8", "surrogateescape")
        return known

    def config_map(self, name: str, key: str) -> bytes | None:
        """The value of a key; None if the ConfigMap, which must exist, has no such key."""
        there = self.found.config_maps[name]
        if key not in there.data:
            return self._binary(name, key, there.binary_data) if key in there.binary_data else None
        at = (Kind.CONFIG_MAP, name, key)
        known = self._bytes.get(at)
        if known is None:
            known = self._bytes[at] = there.data[key].encode()
        return known

    def _binary(self, name: str, key: str, data: Mapping[str, str]) -> bytes:
        found = self._decoded(Kind.CONFIG_MAP, name, key, data)
        if found is None:
            raise Unresolved(FAILED_MOUNT, f'binaryData key {key} of configmap "{name}" is not base64')
        return found

    def _decoded(self, kind: Kind, name: str, key: str, data: Mapping[str, str]) -> bytes | None:
        at = (kind, name, key)
        if at not in self._bytes:
            self._bytes[at] = decoded(data[key])
        return self._bytes[at]


def decoded(text: str) -> bytes | None:
    """Decodes base64; None if it is invalid."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
