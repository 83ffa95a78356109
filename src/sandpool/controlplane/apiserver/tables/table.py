"""Encodes objects as a Table: columns by kind, rows by object, and how much of each object is sent with its row."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from sandpool.controlplane.apiserver.request import Params
from sandpool.controlplane.apiserver.tables.column import AGE, NAME, TableColumn, printer_column
from sandpool.controlplane.apiserver.tables.core import BY_PLURAL
from sandpool.kube.errors import BadRequest
from sandpool.model.resource import Resource

_INCLUDED = {"": "Metadata", "Metadata": "Metadata", "Object": "Object", "None": "None"}


@cache
def columns_of(resource: Resource[Any]) -> tuple[TableColumn, ...]:
    known = BY_PLURAL.get((resource.group, resource.plural))
    if known is not None:
        return known
    if resource.columns:
        return (NAME, *(printer_column(column) for column in resource.columns))
    return (NAME, AGE)


class Table:
    """The table of one kind. `include` is the parameter includeObject: None, Metadata or Object."""

    def __init__(self, columns: tuple[TableColumn, ...], include: str) -> None:
        self._columns = columns
        self._include = include
        self.definitions = msgspec.json.encode([column.definition for column in columns])

    def row(self, value: bytes, now: datetime) -> bytes:
        item: dict[str, Any] = msgspec.json.decode(value)
        cells = [column.cell(item, now) for column in self._columns]
        shown: Any = None
        if self._include == "Object":
            shown = msgspec.Raw(value)
        elif self._include == "Metadata":
            shown = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
        return msgspec.json.encode({"cells": cells, "object": shown})

    def whole(self, values: list[bytes], now: datetime, definitions: bytes | None = None) -> bytes:
        """A whole Table of these objects; its resourceVersion is that of the last one."""
        revision = ""
        if values:
            revision = msgspec.json.decode(values[-1])["metadata"].get("resourceVersion", "")
        head = msgspec.json.encode(
            {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": revision}}
        )
        rows = b",".join(self.row(value, now) for value in values)
        shown = self.definitions if definitions is None else definitions
        return b"".join((head[:-1], b',"columnDefinitions":', shown, b',"rows":[', rows, b"]}"))


def table_of(resource: Resource[Any], params: Params) -> Table:
    asked = params.get("includeObject", "")
    include = _INCLUDED.get(asked)
    if include is None:
        raise BadRequest(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{asked}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    return _table(resource, include)


@cache
def _table(resource: Resource[Any], include: str) -> Table:
    return Table(columns_of(resource), include)
