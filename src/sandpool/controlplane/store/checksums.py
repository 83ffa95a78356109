"""Checksums of what is on disk: of each row, of the floor, and a census of the live objects.

A row's checksum covers everything in it. It cannot tell that a row is not there at all, so each row also carries the census
of the live objects after it: how many there are, and the sum of their revisions. A row that vanished, or an older state that
came back, leaves a census that does not fit what is found.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from zlib import crc32

from sandpool.controlplane.store.record import Change, Record

EMPTY = 0
"""The census of a store without objects."""

_COUNT = 1 << 24  # below it the number of objects, above it the sum of their revisions
_HEAD = Struct(">6q")
_LIMIT = (1 << 63) - 1  # what SQLite keeps as an integer


def row_checksum(revision: int, key: bytes, prior: int, created: int, deleted: int, census: int, value: bytes) -> int:
    """Raises struct.error or TypeError for what is not even of its type."""
    return crc32(value, crc32(key, crc32(_HEAD.pack(revision, prior, created, deleted, census, len(value)))))


def floor_checksum(revision: int, identity: str) -> int:
    return crc32(b"floor %d %b" % (revision, identity.encode()))


def census_after(census: int, change: Change) -> int:
    """The census that a change leaves behind."""
    if change.previous is not None:
        census -= change.previous.revision * _COUNT + 1
    if not change.deleted:
        census += change.record.revision * _COUNT + 1
    return census & _LIMIT


def census_of(live: Iterable[Record]) -> int:
    revisions = [record.revision for record in live]
    return (sum(revisions) * _COUNT + len(revisions)) & _LIMIT


def counted(census: int) -> int:
    """How many objects a census tells of."""
    return census % _COUNT
