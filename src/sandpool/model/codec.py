"""Encodes and decodes objects. Creates one decoder per type, drops unknown fields, writes apiVersion and kind.

A raw part of a decoded object is a view of the bytes it was decoded from and keeps all of them alive. So `decode_list` gives each item
bytes of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from sandpool.model.core import Event, Lease
from sandpool.model.metadata import Model, Object, RawObject
from sandpool.model.resource import Resource
from sandpool.model.times import micro

T = TypeVar("T", bound=Object)

DecodeError = msgspec.DecodeError
"""The bytes are not JSON, or not an object of the expected type (msgspec.ValidationError is a subclass)."""

# Kubernetes refuses these times unless they have exactly six decimals.
_MICRO_TIMES: dict[type, tuple[tuple[str, ...], ...]] = {
    Lease: (("spec", "acquireTime"), ("spec", "renewTime")),
    Event: (("eventTime",), ("series", "lastObservedTime")),
}
_encoder = msgspec.json.Encoder()


class ListMeta(Model, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class _RawList(Model, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class ObjectList(msgspec.Struct, Generic[T], frozen=True):
    metadata: ListMeta
    items: tuple[T, ...]


def decode(resource: Resource[T], data: bytes | bytearray | memoryview | str) -> T:
    found: T = _decoder(resource.type).decode(data)
    return found


def decode_list(resource: Resource[T], data: bytes) -> ObjectList[T]:
    """Decodes a list as a server sends it."""
    page = _list_decoder().decode(data)
    decoder = _decoder(resource.type)
    return ObjectList(page.metadata, tuple(decoder.decode(bytes(item)) for item in page.items or ()))


def convert(resource: Resource[T], body: Mapping[str, Any]) -> T:
    """An object from decoded JSON."""
    if resource.type is RawObject:
        return RawObject(dict(body))  # type: ignore[return-value]
    return decode(resource, _encoder.encode(body))


def encode(obj: Object) -> bytes:
    """The object's JSON, with apiVersion and kind."""
    if isinstance(obj, RawObject):
        return _encoder.encode(obj.body)
    if type(obj) in _MICRO_TIMES:
        return _encoder.encode(to_json(obj))
    data = _encoder.encode(obj)
    prefix = _prefix(type(obj))
    if not prefix:
        return data
    return prefix + (b"}" if data == b"{}" else b"," + data[1:])


def to_json(obj: Object) -> dict[str, Any]:
    """The object's JSON as Python values, with apiVersion and kind."""
    if isinstance(obj, RawObject):
        return obj.body
    times = _MICRO_TIMES.get(type(obj))
    if times is None:
        body: dict[str, Any] = msgspec.json.decode(encode(obj))
        return body
    body = msgspec.json.decode(_prefix(type(obj)) + b"}") | msgspec.json.decode(_encoder.encode(obj))
    for path in times:
        _write_micro(obj, body, path)
    return body


def _write_micro(obj: Object, body: dict[str, Any], path: tuple[str, ...]) -> None:
    holder: Any = obj
    *parents, name = path
    for parent in parents:
        holder, body = getattr(holder, parent), body.get(parent) or {}
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(holder)} if holder is not None else {}
    moment = getattr(holder, fields[name]) if holder is not None else None
    if moment is not None:
        body[name] = micro(moment)


def _hook(kind: type, value: Any) -> Any:
    if kind is RawObject:
        return RawObject(value)
    raise NotImplementedError(kind)


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_hook)


@cache
def _list_decoder() -> msgspec.json.Decoder[_RawList]:
    return msgspec.json.Decoder(_RawList)


@cache
def _prefix(kind: type[Any]) -> bytes:
    """The first part of the JSON of a type with a fixed apiVersion and kind."""
    version, name = getattr(kind, "api_version", None), getattr(kind, "kind", None)
    if not isinstance(version, str) or not isinstance(name, str):
        return b""
    return msgspec.json.encode({"apiVersion": version, "kind": name})[:-1]
