"""Rows as they are on disk, and whether they can be trusted.

Since format 2 each row carries a checksum. Rows of format 1 carry none: all that can be asked is whether their value looks like what
the caller stores (`Check`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from struct import error as StructError
from typing import Any

from sandpool.controlplane.store.checksums import row_checksum
from sandpool.controlplane.store.errors import DamagedStore
from sandpool.controlplane.store.log import Entry, Row
from sandpool.controlplane.store.record import Record
from sandpool.model.metadata import Revision

Check = Callable[[Record], str]
"""What is wrong with a record's value; empty if nothing is."""

COLUMNS = "id, key, prev_revision, created, deleted, value, census, checksum"
Columns = tuple[Revision, str, Revision, Revision, bool, bytes, int, int]


def anything(record: Record) -> str:
    """The Check of a store that may hold any bytes."""
    return ""


class BadRow(DamagedStore):
    """A row that cannot be trusted. Its key is what stands there, and may itself be wrong."""

    def __init__(self, revision: int, key: str, why: str) -> None:
        super().__init__(f"revision {revision} of {key or 'an unknown object'}: {why}")
        self.revision = revision
        self.key = key
        self.why = why


def row_columns(entry: Entry, census: int) -> Columns:
    """What is stored of an entry, where `census` is that of the objects after it."""
    change, prior = entry.change, entry.prior
    record, deleted = change.record, change.deleted
    key, value = record.key, record.value
    checksum = row_checksum(record.revision, key.encode(), prior, record.created, deleted, census, value)
    return (record.revision, key, prior, record.created, deleted, value, census, checksum)


def select(sealed: bool, where: str = "true", order: str = "id") -> str:
    """Keys as bytes: SQLite does not look whether text is UTF-8, and the driver gives up where it is not."""
    last = "census, checksum" if sealed else "0, 0"
    return (
        f"SELECT id, CAST(key AS BLOB), prev_revision, created, deleted, value, {last}"  # noqa: S608
        f" FROM log WHERE {where} ORDER BY {order}"
    )


def read_rows(connection: sqlite3.Connection, sealed: bool, check: Check) -> Iterator[tuple[Row, int]]:
    """All rows in the order of their revisions, each with its census. Raises BadRow at the first that is damaged."""
    keys: dict[bytes, str] = {}
    for raw in connection.execute(select(sealed)):
        yield verified(raw, sealed, check, keys), raw[6]


def verified(raw: tuple[Any, ...], sealed: bool, check: Check, keys: dict[bytes, str]) -> Row:
    """One row, or BadRow. `keys` remembers keys, so that the rows of one key share one string."""
    revision, name, prior, created, deleted, value, census, checksum = raw
    try:
        if sealed and row_checksum(revision, name, prior, created, deleted, census, value) != checksum:
            raise bad_row(raw)
        key = keys.get(name)
        if key is None:
            key = keys[name] = str(name, "utf-8")
        row = Row(Record(key, Revision(revision), Revision(created), value), Revision(prior), bool(deleted))
    except (TypeError, StructError, UnicodeDecodeError) as error:  # a column that is not even of its type
        raise bad_row(raw) from error
    if not sealed and (why := _wrong_type((prior, created, deleted, value)) or check(row.record)):
        raise BadRow(revision, key, why)
    return row


def _wrong_type(columns: Sequence[object]) -> str:
    """SQLite keeps whatever type it finds; a checksum would have told."""
    *numbers, value = columns
    whole = isinstance(value, bytes) and all(isinstance(number, int) for number in numbers)
    return "" if whole else "a column is not of its type"


def bad_row(raw: tuple[Any, ...]) -> BadRow:
    name = raw[1] if isinstance(raw[1], bytes) else b""
    return BadRow(raw[0], legible(name), "its checksum is wrong")


def legible(name: bytes) -> str:
    """A key that may be garbage, fit to be shown."""
    text = name[:200].decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)
