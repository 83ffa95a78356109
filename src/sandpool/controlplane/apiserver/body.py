"""Decodes request bodies (JSON, YAML, protobuf) within bounds of depth and size, and refuses bad ones with Kubernetes' messages."""

from __future__ import annotations

import re
from math import isinf
from typing import Any, Final

import msgspec

from sandpool.controlplane.apiserver.json_text import complaint
from sandpool.controlplane.apiserver.protobuf_body import MEDIA_TYPE as PROTOBUF_TYPE
from sandpool.controlplane.apiserver.protobuf_body import from_protobuf
from sandpool.controlplane.apiserver.yaml_body import YamlError, from_yaml
from sandpool.kube.errors import BadRequest, RequestTooLarge, UnsupportedMedia
from sandpool.wire.protobuf import ProtobufError


def _number(text: str) -> float:
    """Python parses numbers at the ends of the range, such as 1e308, ten times as fast as msgspec: fifty thousand of them took half a second."""
    value = float(text)
    if isinf(value):
        raise ValueError("Number out of range")
    return value


decode_json: Final = msgspec.json.Decoder(float_hook=_number).decode
JSON_TYPES: Final = frozenset({"", "application/json"})
YAML_TYPE: Final = "application/yaml"
MOST_VALUES: Final = 50_000
"""The most values in one body. Each costs up to ten microseconds, and a million would fit into the size limit."""
_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # also an unterminated one: linear time
SHOWN: Final = 30
EXPLAINED: Final = 32 * 1024  # bytes: finding the error in a longer text would take too long


class Malformed(Exception):
    """The body is not JSON; the message is that of Go's decoder."""


def decode(body: bytes, depth: int) -> Any:
    """Decodes JSON. Raises Malformed if it is invalid or nested too deeply, RequestTooLarge if it has too many values."""
    if len(body) > MOST_VALUES and _values(body) > MOST_VALUES:
        raise RequestTooLarge(f"Request entity too large: limit is {MOST_VALUES} values")
    try:
        value = decode_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = complaint(body) if len(body) <= EXPLAINED else ""
        raise Malformed(message or str(error)) from None
    except RecursionError:
        raise Malformed("exceeded max depth") from None
    # The number of brackets is an upper bound of the depth, and cheap to count.
    if body.count(b"{") + body.count(b"[") > depth and isinstance(value, dict | list) and _deeper(value, depth):
        raise Malformed("exceeded max depth")
    return value


def _values(body: bytes) -> int:
    """Estimates how many values a JSON text has, without decoding it: decoding a million values takes a second."""
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
    """The object in the body of a POST or PUT, not yet validated."""
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
    """Decodes a body in any supported format. Raises Malformed, or UnsupportedMedia for another format."""
    if media in JSON_TYPES:
        return decode(body, depth)
    try:
        if media == YAML_TYPE:
            return decode(from_yaml(body), depth)
        if media == PROTOBUF_TYPE:
            return from_protobuf(body)
    except (YamlError, ProtobufError, UnicodeDecodeError, msgspec.DecodeError) as error:
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
    """The name that Go's decoder uses for the type of an unexpected JSON value."""
    if isinstance(value, bool):
        return "bool"
    names = {str: "string", int: "number", float: "number", list: "array", dict: "object", type(None): "null"}
    return names[type(value)]
