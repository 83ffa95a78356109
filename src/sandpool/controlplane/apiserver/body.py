"""Request bodies: decoded within their depth, refused in Kubernetes' words."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from sandpool.controlplane.apiserver.malformed import complaint
from sandpool.controlplane.apiserver.manifest import YamlError, from_yaml
from sandpool.controlplane.apiserver.protobuf.decode import MEDIA_TYPE as PROTOBUF_TYPE
from sandpool.controlplane.apiserver.protobuf.decode import from_protobuf
from sandpool.controlplane.apiserver.protobuf.wire import WireError
from sandpool.kube.errors import BadRequest, RequestTooLarge, UnsupportedMedia

_DECODE: Final = msgspec.json.Decoder().decode
JSON_TYPES: Final = frozenset({"", "application/json"})
YAML_TYPE: Final = "application/yaml"
MOST_VALUES: Final = 50_000
"""Of one body. What is done with it costs by their number, up to ten microseconds for each, and a body has room for a million."""
_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # the last may have no end: never looked for twice
SHOWN: Final = 30
EXPLAINED: Final = 32 * 1024  # bytes: what is wrong with a longer text takes long to find out


class Malformed(Exception):
    """Not a JSON document; the text says what Go's decoder would."""


def decode(body: bytes, depth: int) -> Any:
    """A JSON value; Malformed if it is none or is nested deeper than allowed, RequestTooLarge if it has too many values."""
    if len(body) > MOST_VALUES and _values(body) > MOST_VALUES:
        raise RequestTooLarge(f"Request entity too large: limit is {MOST_VALUES} values")
    try:
        value = _DECODE(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        words = complaint(body) if len(body) <= EXPLAINED else ""
        raise Malformed(words or str(error)) from None
    except RecursionError:
        raise Malformed("exceeded max depth") from None
    # Counting brackets is an upper bound of the depth and costs next to nothing.
    if body.count(b"{") + body.count(b"[") > depth and isinstance(value, dict | list) and _deeper(value, depth):
        raise Malformed("exceeded max depth")
    return value


def _values(body: bytes) -> int:
    """About how many values a JSON text has, without reading it: what decoding would make of a million costs a second."""
    if _counted(body) <= MOST_VALUES:
        return 0
    texts = (body.count(b'"') - body.count(b'\\"')) // 2
    return texts // 2 if texts > 2 * MOST_VALUES else _counted(_STRINGS.sub(b"", body))  # a value may have a name


def _counted(text: bytes) -> int:
    return text.count(b",") + text.count(b"{") + text.count(b"[")


def _deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        below: list[Any] = []
        for item in level:
            below.extend(item.values() if isinstance(item, dict) else item)
        level = [item for item in below if isinstance(item, dict | list)]
        if not level:
            return False
    return True


def decode_object(body: bytes, media: str, kind: str, depth: int) -> dict[str, Any]:
    """The object that a POST or PUT carries, as yet unchecked."""
    try:
        value = decode(body, depth) if media in JSON_TYPES else decode_media(body, media, depth)
    except Malformed as error:
        raise unrecognized(kind, f"couldn't get version/kind; json parse error: {error}", body) from None
    if value is None:
        value = {}
    if not isinstance(value, dict):
        said = f"json: cannot unmarshal {go_type(value)} into Go value of type struct"
        raise unrecognized(kind, f"couldn't get version/kind; json parse error: {said}", body)
    return value


def decode_media(body: bytes, media: str, depth: int) -> Any:
    """A value in any of the formats that are read; Malformed, or UnsupportedMedia for a format that is not."""
    if media in JSON_TYPES:
        return decode(body, depth)
    try:
        if media == YAML_TYPE:
            return decode(from_yaml(body), depth)
        if media == PROTOBUF_TYPE:
            return from_protobuf(body)
    except (YamlError, WireError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise Malformed(str(error)) from None
    raise UnsupportedMedia(
        "the body of the request was in an unknown format - accepted media types include: "
        f"application/json, {YAML_TYPE}, {PROTOBUF_TYPE}"
    )


def unrecognized(kind: str, why: str, body: bytes) -> BadRequest:
    return BadRequest(f"the object provided is unrecognized (must be of type {kind}): {why} ({_shown(body)})")


def _shown(body: bytes) -> str:
    if not body:
        return "<empty>"
    cut = body[:SHOWN]
    more = " ..." if len(body) > SHOWN else ""
    return (cut.decode("utf-8", "replace") if body[:1] == b"{" else cut.hex()) + more


def go_type(value: Any) -> str:
    """What Go's decoder calls a JSON value that it did not expect."""
    if isinstance(value, bool):
        return "bool"
    names = {str: "string", int: "number", float: "number", list: "array", dict: "object", type(None): "null"}
    return names[type(value)]
