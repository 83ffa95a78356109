"""/openapi/v2 for kubectl before 1.29, which will not go on without one: a valid document that says nothing.

Those versions ask for protobuf and skip their own validation of kinds that the document does not mention; the server
validates anyway. Everything there is to know is in /openapi/v3.
"""

from __future__ import annotations

from typing import Final

import msgspec

from sandpool.controlplane.apiserver.discovery.pages import Page
from sandpool.controlplane.apiserver.negotiate import not_acceptable, wanted
from sandpool.version import __version__

PATH: Final = "/openapi/v2"
_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_ASKED: Final = frozenset({_PROTOBUF, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"})
_TITLE: Final = "Sandpool"


def _text(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field, short enough for one byte of length."""
    return bytes((number << 3 | 2, len(content))) + content


def _document() -> bytes:
    info = _text(1, _TITLE.encode()) + _text(2, __version__.encode())
    return _text(1, b"2.0") + _text(2, info) + _text(8, b"")  # swagger, info, paths


class LegacyOpenApi:
    def __init__(self) -> None:
        content = {"swagger": "2.0", "info": {"title": _TITLE, "version": __version__}, "paths": {}, "definitions": {}}
        self._json = Page(msgspec.json.encode(content))
        self._protobuf = Page(_document(), _PROTOBUF)

    def page(self, accept: bytes | None) -> Page:
        for entry in wanted(accept or b"*/*"):
            if entry.type in _ASKED:
                return self._protobuf
            if entry.json:
                return self._json
        raise not_acceptable()
