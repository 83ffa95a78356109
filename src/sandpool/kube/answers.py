"""Parses answers of an API server: objects, pages and errors. Whatever cannot be parsed raises Unreadable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from sandpool.kube.api import Page
from sandpool.kube.errors import ApiError, Unreadable, from_status
from sandpool.model.codec import decode, decode_list
from sandpool.model.metadata import Object, Revision
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)
R = TypeVar("R")


class _Cause(msgspec.Struct, omit_defaults=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, omit_defaults=True, rename="camel"):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[_Cause] | None = None
    retry_after_seconds: int | None = None


class _Status(msgspec.Struct, omit_defaults=True):
    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


class _Kind(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""


_STATUS = msgspec.json.Decoder(_Status)
_KIND = msgspec.json.Decoder(_Kind)


def read_object(resource: Resource[T], body: bytes) -> T:
    return _read(resource, lambda: decode(resource, body))


def read_page(resource: Resource[T], body: bytes) -> Page[T]:
    def page() -> Page[T]:
        answer = decode_list(resource, body)
        metadata = answer.metadata
        revision = Revision(int(metadata.resource_version))
        return Page(answer.items, revision, metadata.continue_, metadata.remaining_item_count)

    return _read(resource, page)


def read_deleted(resource: Resource[T], body: bytes) -> T | None:
    """The object that a delete left behind, or None. A delete answers with a Status, or with the object: its last state if it is gone, or marked
    for deletion if finalizers or a grace period keep it. A pod that is gone at once is marked too, with a grace period of 0; a namespace has
    no grace period and stays."""

    def deleted() -> T | None:
        answer = _KIND.decode(body)
        if answer.kind == "Status" and answer.api_version == "v1":
            return None
        object = decode(resource, body)
        metadata = object.metadata
        held = metadata.finalizers or metadata.deletion_grace_period_seconds != 0
        return object if metadata.leaving and held else None

    return _read(resource, deleted)


def read_status(code: int, body: bytes, retry_after: int | None = None) -> ApiError:
    """The error of an answer. Proxies answer with anything: a body that is no Status counts by its code."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = _Status()
    if status.kind != "Status":
        text = body[:200].decode("utf-8", "replace").strip()
        detail = f": {text}" if text else ""
        return from_status(code, {"message": f"the server answered {code}{detail}"}, retry_after)
    fields: dict[str, Any] = msgspec.to_builtins(status)
    return from_status(code, fields, retry_after)


def _read(resource: Resource[T], reading: Callable[[], R]) -> R:
    try:
        return reading()
    except (msgspec.DecodeError, ValueError) as error:
        raise Unreadable(f"the server's answer for {resource.group_resource} cannot be read: {error}") from error
