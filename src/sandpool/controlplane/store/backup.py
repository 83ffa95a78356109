"""Backups: writes the live records of a store to a file, and reads that file back. Any process can back up a store that is in use.

A backup is one file with the live records as of one revision. It is read back from disk before it gets its final name, and it is read
completely, with all its checksums, before anything is restored from it.

The file consists of a title line, the records, the list of their keys, and a digest. Each record has a number and two CRC-32 checksums (of its
head, and of all of it), so that damage can be located and sound records can be salvaged from a damaged file. The SHA-256 at the end covers all
bytes before it. The list of keys gives the names of records that cannot be read.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import sqlite3
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import msgspec

from sandpool.controlplane.store.errors import DamagedBackup, DamagedStore, ForeignFile, StoreError, UnknownFormat
from sandpool.controlplane.store.files import create_private, remove, rename_durably, sync_file
from sandpool.controlplane.store.loading import UNSOUND, holes_of, live_of, load, losses_of, salvage
from sandpool.controlplane.store.opening import look_through
from sandpool.controlplane.store.record import Record
from sandpool.controlplane.store.rows import Check, anything, legible
from sandpool.controlplane.store.sqlite_file import check_header, check_length, is_not_damage, open_reader
from sandpool.model.metadata import NO_REVISION, Revision

VERSION = 2  # version 1 was a SQLite database without checksums
TITLE = b"sandpool-backup %d\n"

_RECORD, _KEYS, _END = b"\x1eSPR", b"\x1eSPK", b"\x1eSPE"  # the first byte occurs neither in JSON nor in keys
_HEAD = struct.Struct(">4sIIIQQ")  # kind of block, number, length of the key, length of the value, revision, created
_CHECKSUM = struct.Struct(">I")
_LAST = struct.Struct(">4sIQ")  # end marker, number of records, revision of the store
_DIGEST = hashlib.sha256().digest_size
_NEXT = re.compile(b"\x1eSP[RKE]")


def encode(records: Iterable[Record], revision: Revision) -> Iterator[bytes]:
    """The bytes of a backup, in pieces to be written one after the other."""
    digest = hashlib.sha256()
    keys: list[str] = []
    for piece in _blocks(records, keys, revision):
        digest.update(piece)
        yield piece
    yield digest.digest()


def _blocks(records: Iterable[Record], keys: list[str], revision: Revision) -> Iterator[bytes]:
    yield TITLE % VERSION
    for record in records:
        yield _block(_RECORD, len(keys), record.key.encode(), record.value, record.revision, record.created)
        keys.append(record.key)
    yield _block(_KEYS, len(keys), b"", msgspec.json.encode(keys), NO_REVISION, NO_REVISION)
    last = _LAST.pack(_END, len(keys), revision)
    yield last + _CHECKSUM.pack(crc32(last))


def _block(kind: bytes, number: int, key: bytes, value: bytes, revision: Revision, created: Revision) -> bytes:
    head = _HEAD.pack(kind, number, len(key), len(value), revision, created)
    whole = head + _CHECKSUM.pack(crc32(head)) + key + value
    return whole + _CHECKSUM.pack(crc32(whole))


@dataclass(slots=True)
class Parsed:
    """The content of a backup file. The file is sound if `problems` is empty."""

    records: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)  # keys of damaged or missing records, where they are known
    ended: bool = False
    unaltered: bool = False  # the SHA-256 of the whole file matches


def version_of(start: bytes) -> int | None:
    """The version of a backup, from its first bytes; None if they are not those of a backup."""
    found = re.match(rb"sandpool-backup (\d{1,6})\n", start)
    return int(found[1]) if found else None


def parse(data: bytes) -> Parsed:
    """Parses a backup; continues behind damaged parts."""
    found, seen = Parsed(), _Seen()
    title = TITLE % VERSION
    position = len(title)
    if not data.startswith(title):
        found.problems.append("the first line does not say that this is a backup")
        position = 0
    while position < len(data) and not found.ended:
        position = _take(data, position, found, seen)
    if not found.ended:
        found.problems.append(f"the file ends at byte {len(data)}, in the middle of the backup")
    elif position < len(data):
        found.problems.append(f"{len(data) - position} bytes follow after the end of the backup, at byte {position}")
    _count(found, seen)
    return found


@dataclass(slots=True)
class _Seen:
    numbers: dict[int, str] = field(default_factory=dict)  # keys of sound records
    damaged: dict[int, str] = field(default_factory=dict)  # keys of damaged records whose head is sound
    keys: list[str] | None = None
    expected: int | None = None


def _take(data: bytes, position: int, found: Parsed, seen: _Seen) -> int:
    """Parses one block, or skips a damaged part. Returns the position of the next block."""
    kind = data[position : position + 4]
    if kind == _END and (past := _ending(data, position, found, seen)):
        return past
    head = data[position : position + _HEAD.size]
    behind = position + _HEAD.size + _CHECKSUM.size
    if kind not in (_RECORD, _KEYS) or data[position + _HEAD.size : behind] != _CHECKSUM.pack(crc32(head)):
        following = _NEXT.search(data, position + 1)
        beyond = following.start() if following else len(data)
        found.problems.append(f"bytes {position} to {beyond - 1} are damaged")
        return beyond
    _, number, key_size, size, revision, created = _HEAD.unpack(head)
    end: int = behind + key_size + size + _CHECKSUM.size
    name, value = data[behind : behind + key_size], data[behind + key_size : end - _CHECKSUM.size]
    if data[end - _CHECKSUM.size : end] != _CHECKSUM.pack(crc32(data[position : end - _CHECKSUM.size])):
        if kind == _RECORD:
            seen.damaged[number] = legible(name)
            found.problems.append(f"record {number} ({legible(name)}) at byte {position} is damaged")
        else:
            found.problems.append(f"the list of keys at byte {position} is damaged")
        following = _NEXT.search(data, position + 1)
        return end if data[end : end + 3] == _RECORD[:3] or not following else following.start()
    if kind == _KEYS:
        seen.keys = msgspec.json.decode(value, type=list[str])
    else:
        _add(Record(name.decode(), Revision(revision), Revision(created), value), number, position, found, seen)
    return end


def _add(record: Record, number: int, position: int, found: Parsed, seen: _Seen) -> None:
    if number in seen.numbers:
        found.problems.append(f"record {number} ({record.key}) at byte {position} is there twice")
        return
    if number != len(seen.numbers) and not found.problems:
        found.problems.append(f"record {number} ({record.key}) at byte {position} is not in its place")
    seen.numbers[number] = record.key
    found.records.append(record)


def _ending(data: bytes, position: int, found: Parsed, seen: _Seen) -> int:
    """Parses the end marker. Returns where the file should end; 0 if the marker is damaged."""
    last = data[position : position + _LAST.size]
    behind = position + _LAST.size + _CHECKSUM.size
    if data[position + _LAST.size : behind] != _CHECKSUM.pack(crc32(last)):
        return 0
    found.ended = True
    seen.expected = _LAST.unpack(last)[1]
    found.unaltered = data[behind:] == hashlib.sha256(data[:behind]).digest()
    if not found.unaltered:
        found.problems.append(f"the checksum of the whole file, at byte {behind}, is not that of its content")
    return behind + _DIGEST


def _count(found: Parsed, seen: _Seen) -> None:
    expected = len(seen.keys) if seen.keys is not None else seen.expected
    if expected is None:
        found.lost = [name for number, name in sorted(seen.damaged.items()) if number not in seen.numbers]
        return
    absent = [number for number in range(expected) if number not in seen.numbers]
    names = dict(enumerate(seen.keys)) if seen.keys is not None else seen.damaged
    found.lost = [names.get(number, f"record {number}") for number in absent]
    if absent and not found.problems:
        found.problems.append(f"{len(absent)} of {expected} records are missing")


LARGEST = 8 << 30
"""The largest file that is read as a backup, in bytes: the whole file is read into memory."""

_SHOWN = 10
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Contents:
    """The records of a backup in key order, and the names of those that were left out because they are damaged."""

    records: tuple[Record, ...]
    left_out: tuple[str, ...] = ()
    sealed: bool = True  # False: an old backup without checksums
    whole: bool = True  # False: something is damaged; what it was may be unknown


def backup(source: Path, target: Path, check: Check = anything) -> int:
    """Writes the live records of the store at `source`, which may be in use, to `target`, which appears complete or not at all.
    Returns the number of records."""
    if os.path.lexists(target):
        raise StoreError(f"{target} already exists: choose another name for the backup")
    loaded = look_through(source, check)
    records = [loaded.live[key] for key in sorted(loaded.live)]
    draft = target.with_name(f"{target.name}.partial-{os.getpid()}")
    try:
        _write(draft, encode(records, loaded.revision))
        if read_backup(draft).records != tuple(records):
            raise DamagedBackup(f"{target} does not hold what was written to it: check the disk, then try again")
        rename_durably(draft, target)
    finally:
        remove(draft)
    return len(records)


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    create_private(path)
    with path.open("wb") as file:
        file.writelines(pieces)
    sync_file(path)
    with path.open("rb") as file:  # so that reading it back reads the disk, not the page cache
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_backup(path: Path, salvaging: bool = False, check: Check = anything) -> Contents:
    """Reads a backup. Raises DamagedBackup if any part is damaged; with `salvaging`, returns the sound records instead."""
    start = _start(path)
    version = version_of(start)
    if version is None and start.startswith(b"SQLite format 3\0"):
        return _read_old(path, salvaging, check)
    data, unreadable = _content(path)
    found = parse(data)
    if version is not None and version > VERSION and (found.unaltered or not found.records):
        raise UnknownFormat(
            f"{path} is a backup of version {version}, this program reads up to version {VERSION}:"
            " use the version of sandpool that wrote it, or a newer one"
        )
    if version is None and not found.records:
        raise ForeignFile(f"{path} is not a backup of sandpool: choose another file")
    problems = [*unreadable, *found.problems]
    if problems and not salvaging:
        raise _refusal(path, problems, len(found.records))
    records = tuple(sorted(found.records, key=lambda record: record.key))
    return Contents(records, tuple(found.lost), whole=not problems)


def _refusal(path: Path, problems: list[str], sound: int) -> DamagedBackup:
    shown = problems if len(problems) <= _SHOWN + 1 else [*problems[:_SHOWN], f"and {len(problems) - _SHOWN} more"]
    lines = [f"{path} is damaged. Nothing was restored. What was found:", *(f"  - {line}" for line in shown)]
    lines.append(
        f"{sound} objects in it are sound. Use another backup, or take those with `sandpool restore --salvage`."
        if sound
        else "No object in it can be read. Use another backup."
    )
    return DamagedBackup("\n".join(lines))


def _start(path: Path) -> bytes:
    """The first bytes of a regular file. Raises StoreError if it is missing, too large or unreadable."""
    try:
        kind = path.stat()
        if not stat.S_ISREG(kind.st_mode):
            raise StoreError(f"{path} is not a file: name the backup file itself")
        if kind.st_size > LARGEST:
            raise StoreError(f"{path} is larger than any backup ({kind.st_size} bytes): choose another file")
        with path.open("rb") as file:
            return file.read(100)
    except FileNotFoundError as error:
        raise StoreError(f"there is no backup at {path}") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}. Check who may read it, and its disk.") from error


def _content(path: Path) -> tuple[bytes, list[str]]:
    """The bytes of a file, with zeros where the disk has read errors, and a message for each such range."""
    pieces: list[bytes] = []
    unreadable: list[str] = []
    with path.open("rb", buffering=0) as file:
        size, position = os.fstat(file.fileno()).st_size, 0
        while position < size:
            try:
                piece = os.pread(file.fileno(), min(_PIECE, size - position), position)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                piece = bytes(min(4096, size - position))
                unreadable.append(f"the disk cannot read bytes {position} to {position + len(piece) - 1}")
            if not piece:
                break
            pieces.append(piece)
            position += len(piece)
    return b"".join(pieces), unreadable


def _read_old(path: Path, salvaging: bool, check: Check) -> Contents:
    """Reads a backup of version 1, a SQLite database with the rows of a store and no checksums; or the file of a store itself."""
    try:
        sealed = check_header(path) > 1
    except (ForeignFile, DamagedStore) as error:
        raise ForeignFile(f"{path} is a database, but not a backup of sandpool: choose another file") from error
    connection = open_reader(path)
    try:
        check_length(path)
        live = load(connection, sealed, 0, check).live
        return Contents(_sorted(live), sealed=sealed)
    except UNSOUND as error:
        if is_not_damage(error):
            raise StoreError(f"{path} cannot be read ({error}): check who may read it, and its disk") from error
        return _salvaged(path, connection, sealed, salvaging, check, str(error))
    finally:
        connection.close()


def _salvaged(
    path: Path, connection: sqlite3.Connection, sealed: bool, salvaging: bool, check: Check, first: str
) -> Contents:
    found = salvage(connection, sealed, check)
    live = live_of(found.rows.values())
    losses = losses_of(found)
    if not salvaging:
        problems = dict.fromkeys((first, *found.facts, *holes_of(found), *map(str, losses)))
        raise _refusal(path, list(problems), len(live))
    left_out = sorted({loss.key or f"revision {loss.revision}" for loss in losses if not loss.superseded})
    return Contents(_sorted(live), tuple(left_out), sealed, whole=False)


def _sorted(live: dict[str, Record]) -> tuple[Record, ...]:
    return tuple(live[key] for key in sorted(live))
