"""Renders a meta.k8s.io/v1 Table as text. Columns keep their width while a table is followed."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Row = Sequence[str]

_GAP = "   "
_GREEN, _RED, _BOLD, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
_TELLING = {"READY", "STATUS"}
_GOOD, _BAD = {"True", "Running", "Active", "Bound"}, {"False", "Failed", "Error", "CrashLoopBackOff"}


@dataclass(slots=True)
class Table:
    """Header and rows; `widths` are those of everything shown so far."""

    header: tuple[str, ...]
    color: bool = False
    widths: list[int] | None = None

    def lines(self, rows: Sequence[Row], *, header: bool) -> list[str]:
        shown = [tuple(plain(cell) for cell in row) for row in rows]
        every = [self.header, *shown] if header else shown
        before = self.widths or [0] * len(self.header)
        self.widths = [max([before[at], *(wide(row[at]) for row in every)]) for at in range(len(self.header))]
        lines = [self._line(row, self.widths) for row in shown]
        head = [self._bold(self._line(self.header, self.widths, paint=False))] if header else []
        return head + lines

    def _line(self, row: Row, widths: Sequence[int], *, paint: bool = True) -> str:
        cells = []
        for at, cell in enumerate(row):
            space = "" if at == len(row) - 1 else " " * (widths[at] - wide(cell))
            cells.append((self._paint(self.header[at], cell) if paint else cell) + space)
        return _GAP.join(cells).rstrip(" ")

    def _paint(self, column: str, cell: str) -> str:
        if not self.color or column not in _TELLING:
            return cell
        hue = _GREEN if cell in _GOOD else _RED if cell in _BAD else ""
        return f"{hue}{cell}{_PLAIN}" if hue else cell

    def _bold(self, line: str) -> str:
        return f"{_BOLD}{line}{_PLAIN}" if self.color else line


def columns(definitions: Sequence[Json], *, all: bool) -> list[int]:
    """The columns to show; those with a priority only with `all`."""
    return [at for at, one in enumerate(definitions) if all or not one.get("priority")]


def header(definitions: Sequence[Json], chosen: Sequence[int], *, namespaces: bool) -> tuple[str, ...]:
    names = tuple(str(definitions[at]["name"]).upper() for at in chosen)
    return ("NAMESPACE", *names) if namespaces else names


def row(item: Json, chosen: Sequence[int], *, namespaces: bool) -> tuple[str, ...]:
    cells = tuple(_cell(item["cells"][at]) for at in chosen)
    metadata = (item.get("object") or {}).get("metadata") or {}
    return (str(metadata.get("namespace") or ""), *cells) if namespaces else cells


def _cell(value: Any) -> str:
    if value is None:
        return "<none>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def plain(text: str) -> str:
    """Text may come from tenants: removes control characters and line breaks."""
    return "".join(character if character.isprintable() else " " for character in text)


def wide(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return len(text) if text.isascii() else sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
