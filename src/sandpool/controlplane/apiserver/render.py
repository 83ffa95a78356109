"""Makes response bodies from stored bytes: joins them for lists and events, and decodes only for a Table or PartialObjectMetadata."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from sandpool.controlplane.apiserver.negotiate import Form
from sandpool.controlplane.apiserver.request import Params, truth
from sandpool.controlplane.apiserver.response import PIECE
from sandpool.controlplane.apiserver.tables.table import Table, table_of
from sandpool.controlplane.objects.options import Listed
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import NotAcceptable
from sandpool.model.resource import Resource


class _Partial(msgspec.Struct, gc=False):
    metadata: msgspec.Raw


_PARTIAL: Final = msgspec.json.Decoder(_Partial)
_PARTIAL_HEAD: Final = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'
ROWS: Final = 200  # table rows between two turns


def partial(value: bytes) -> bytes:
    """Only the metadata of an object, as PartialObjectMetadata."""
    return _PARTIAL_HEAD + bytes(_PARTIAL.decode(value).metadata) + b"}"


def one(value: bytes, form: Form, resource: Resource[Any], params: Params, now: Callable[[], datetime]) -> bytes:
    """A single object in the requested form."""
    if form is Form.TABLE:
        table = table_of(resource, params)
        value = table.whole([value], now())
    elif form is Form.PARTIAL:
        value = partial(value)
    elif form is Form.PARTIAL_LIST:
        raise NotAcceptable("a single object is not a list: ask for as=PartialObjectMetadata")
    return pretty(value, params)


def pretty(value: bytes, params: Params) -> bytes:
    return msgspec.json.format(value, indent=2) if params and truth(params, "pretty") else value


def list_head(kind: str, api_version: str, listed: Listed) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(listed.revision)}
    if listed.after:
        metadata["continue"] = listed.after
        if listed.remaining is not None:
            metadata["remainingItemCount"] = listed.remaining
    head = msgspec.json.encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return head[:-1]


class ListParts:
    """A list as head, items and tail, for whole responses and for streamed ones."""

    def __init__(
        self, head: bytes, item: Callable[[Record], bytes] | None, records: Sequence[Record], batch: int
    ) -> None:
        self._head = head
        self._item = item
        self._records = records
        self._batch = batch

    @property
    def size(self) -> int:
        """Its approximate length in bytes."""
        return len(self._head) + sum([len(record.value) for record in self._records])

    def whole(self) -> bytes:
        return b"".join((self._head, b",".join(self._made(self._records)), b"]}"))

    async def pieces(self) -> AsyncIterator[bytes]:
        pending, size = [self._head], len(self._head)
        separator = b""
        for records in self._batches():
            for items in _portions(self._made(records)):
                pending += (separator, items)
                separator = b","
                size += len(items)
                if size > PIECE:
                    yield b"".join(pending)
                    pending, size = [], 0
            if (
                self._item is not None and pending
            ):  # however short it became: making it took as long as reading what it was
                yield b"".join(pending)
                pending, size = [], 0
            await asyncio.sleep(0)
        yield b"".join((*pending, b"]}"))

    def _batches(self) -> Iterator[Sequence[Record]]:
        """Records of about PIECE bytes, and not too many of them."""
        start = size = 0
        for end, record in enumerate(self._records, 1):
            size += len(record.value)
            if size > PIECE or end - start == self._batch:
                yield self._records[start:end]
                start, size = end, 0
        yield self._records[start:]

    def _made(self, records: Sequence[Record]) -> list[bytes]:
        item = self._item
        return [record.value for record in records] if item is None else [item(record) for record in records]


def _portions(items: list[bytes]) -> list[bytes]:
    """Items joined by commas: all in one piece, unless they are large."""
    return [] if not items else [b",".join(items)] if sum(map(len, items)) <= PIECE else items


def list_parts(listed: Listed, form: Form, resource: Resource[Any], params: Params, now: datetime) -> ListParts:
    if form is Form.TABLE:
        table = table_of(resource, params)
        head = (
            list_head("Table", "meta.k8s.io/v1", listed) + b',"columnDefinitions":' + table.definitions + b',"rows":['
        )
        return ListParts(head, lambda record: table.row(record.value, now), listed.records, ROWS)
    if form is Form.OBJECT:
        head = list_head(f"{resource.kind}List", resource.api_version, listed) + b',"items":['
        return ListParts(head, None, listed.records, 64)
    head = list_head("PartialObjectMetadataList", "meta.k8s.io/v1", listed) + b',"items":['
    return ListParts(head, lambda record: partial(record.value), listed.records, ROWS)


def event_shape(
    form: Form, resource: Resource[Any], params: Params, now: Callable[[], datetime]
) -> Callable[[bytes], bytes] | None:
    """A function that converts the object of a watch event to the requested form; None: the stored bytes are sent."""
    if form is Form.OBJECT:
        return None
    if form is Form.TABLE:
        table = table_of(resource, params)
        return _TableEvents(table, now)
    return partial


class _TableEvents:
    """Each event is a Table of one row; only the first carries the column definitions."""

    def __init__(self, table: Table, now: Callable[[], datetime]) -> None:
        self._table = table
        self._now = now
        self._definitions = table.definitions

    def __call__(self, value: bytes) -> bytes:
        made = self._table.whole([value], self._now(), self._definitions)
        self._definitions = b"null"
        return made
