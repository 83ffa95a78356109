"""The rows of the log as they are on disk: how they are encoded, selected and verified.

A row's checksum covers all its columns. A checksum cannot show that a row is missing, so each row also carries a census of the live objects after
it: their number, and the sum of their revisions. If a row vanished, or an older state came back, the census does not match what is found.
Rows of format 1 have no checksum: all we can check is whether their value looks like what the caller stores (`Check`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any
from zlib import crc32

from sandpool.controlplane.store.errors import DamagedStore
from sandpool.controlplane.store.log import Entry, Row
from sandpool.controlplane.store.record import Change, Record
from sandpool.model.metadata import Revision

EMPTY = 0
"""The census of a store without objects."""

_COUNT = 1 << 24  # a census is the sum of revisions times this, plus the number of objects
_HEAD = Struct(">6q")
_LIMIT = (1 << 63) - 1  # the largest integer of SQLite
Check = Callable[[Record], str]
"""Returns what is wrong with a record's value; empty if nothing is."""
COLUMNS = "id, key, prev_revision, created, deleted, value, census, checksum"
Columns = tuple[Revision, str, Revision, Revision, bool, bytes, int, int]


def row_checksum(revision: int, key: bytes, prior: int, created: int, deleted: int, census: int, value: bytes) -> int:
    """The CRC-32 of a row. Raises struct.error or TypeError if a column has the wrong type."""
    return crc32(value, crc32(key, crc32(_HEAD.pack(revision, prior, created, deleted, census, len(value)))))


def floor_checksum(revision: int, identity: str) -> int:
    return crc32(b"floor %d %b" % (revision, identity.encode()))


def census_after(census: int, change: Change) -> int:
    """The census after a change."""
    if change.previous is not None:
        census -= change.previous.revision * _COUNT + 1
    if not change.deleted:
        census += change.record.revision * _COUNT + 1
    return census & _LIMIT


def census_of(live: Iterable[Record]) -> int:
    revisions = [record.revision for record in live]
    return (sum(revisions) * _COUNT + len(revisions)) & _LIMIT


def counted(census: int) -> int:
    """The number of objects in a census."""
    return census % _COUNT


def anything(record: Record) -> str:
    """A Check that accepts any bytes."""
    return ""


class BadRow(DamagedStore):
    """A damaged row. `key` is what the row says, and may be wrong too."""

    def __init__(self, revision: int, key: str, why: str) -> None:
        super().__init__(f"revision {revision} of {key or 'an unknown object'}: {why}")
        self.revision = revision
        self.key = key
        self.why = why


def row_columns(entry: Entry, census: int) -> Columns:
    """The columns of an entry. `census` is the census after it."""
    change, prior = entry.change, entry.prior
    record, deleted = change.record, change.deleted
    key, value = record.key, record.value
    checksum = row_checksum(record.revision, key.encode(), prior, record.created, deleted, census, value)
    return (record.revision, key, prior, record.created, deleted, value, census, checksum)


def select(sealed: bool, where: str = "true", order: str = "id") -> str:
    """The query for rows. It selects keys as bytes: SQLite does not check that text is UTF-8, and the driver raises if it is not."""
    last = "census, checksum" if sealed else "0, 0"
    return (
        f"SELECT id, CAST(key AS BLOB), prev_revision, created, deleted, value, {last}"  # noqa: S608
        f" FROM log WHERE {where} ORDER BY {order}"
    )


def read_rows(connection: sqlite3.Connection, sealed: bool, check: Check) -> Iterator[tuple[Row, int]]:
    """All rows in the order of their revisions, each with its census. Raises BadRow at the first damaged row."""
    keys: dict[bytes, str] = {}
    for raw in connection.execute(select(sealed)):
        yield verified(raw, sealed, check, keys), raw[6]


def verified(raw: tuple[Any, ...], sealed: bool, check: Check, keys: dict[bytes, str]) -> Row:
    """Verifies and decodes one row. Raises BadRow. `keys` interns keys, so that all rows of a key share one string."""
    revision, name, prior, created, deleted, value, census, checksum = raw
    try:
        if sealed and row_checksum(revision, name, prior, created, deleted, census, value) != checksum:
            raise bad_row(raw)
        key = keys.get(name)
        if key is None:
            key = keys[name] = str(name, "utf-8")
        row = Row(Record(key, Revision(revision), Revision(created), value), Revision(prior), bool(deleted))
    except (TypeError, StructError, UnicodeDecodeError) as error:  # a column has the wrong type
        raise bad_row(raw) from error
    if not sealed and (why := _wrong_type((prior, created, deleted, value)) or check(row.record)):
        raise BadRow(revision, key, why)
    return row


def _wrong_type(columns: Sequence[object]) -> str:
    """The message for a column of the wrong type, or empty. For rows without checksums: SQLite does not enforce types."""
    *numbers, value = columns
    whole = isinstance(value, bytes) and all(isinstance(number, int) for number in numbers)
    return "" if whole else "a column is not of its type"


def bad_row(raw: tuple[Any, ...]) -> BadRow:
    name = raw[1] if isinstance(raw[1], bytes) else b""
    return BadRow(raw[0], legible(name), "its checksum is wrong")


def legible(name: bytes) -> str:
    """A possibly damaged key as printable text."""
    text = name[:200].decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)
