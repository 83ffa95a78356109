"""A column of a Table: its definition, and the value of its cell for an object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sandpool.model.jsonpath import Path, parse_path
from sandpool.model.resource import Column
from sandpool.model.times import since

Json = dict[str, Any]
Cell = Callable[[Json, datetime], Any]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a Table."""

    name: str
    cell: Cell
    priority: int = 0
    type: str = "string"
    format: str = ""
    description: str = ""

    @property
    def definition(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


def _name(item: Json, now: datetime) -> Any:
    return item["metadata"].get("name", "")


def _age(item: Json, now: datetime) -> Any:
    return since(item["metadata"].get("creationTimestamp"), now)


NAME = TableColumn("Name", _name, format="name", description="The name of the object, unique within its namespace.")
AGE = TableColumn("Age", _age, description="How long ago the object was created.")


def plain(name: str, cell: Callable[[Json], Any], priority: int = 0) -> TableColumn:
    """A column whose cell does not depend on the time."""
    return TableColumn(name, lambda item, now: cell(item), priority)


def printer_column(column: Column) -> TableColumn:
    """An additionalPrinterColumn of a CRD."""
    find = parse_path(column.path)
    description = column.description or f"Custom resource definition column (in JSONPath format): {column.path}"
    return TableColumn(column.name, _cell(column.type, find), column.priority, column.type, "", description)


def _cell(kind: str, find: Path) -> Cell:
    def cell(item: Json, now: datetime) -> Any:
        found = [value for value in find(item, item) if value is not None]
        if not found:
            return None
        if kind == "date":
            return since(found[0], now)
        if kind == "integer":
            return int(found[0]) if _number(found[0]) else None
        if kind == "number":
            return found[0] if _number(found[0]) else None
        if kind == "boolean":
            return found[0] if isinstance(found[0], bool) else None
        return " ".join(_text(value) for value in found)

    return cell


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    return str(value)
