"""Backups: a live store copied by any process, and read back.

A backup is one file with the live records as of one revision. It is read back from the disk before it gets its name, and read
completely, with all its checksums, before anything is restored from it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sandpool.controlplane.store.backup_format import VERSION, encode, parse, version_of
from sandpool.controlplane.store.errors import DamagedBackup, DamagedStore, ForeignFile, StoreError, UnknownFormat
from sandpool.controlplane.store.files import create_private, remove, rename_durably, sync_file
from sandpool.controlplane.store.loading import UNSOUND, load
from sandpool.controlplane.store.opening import look_through
from sandpool.controlplane.store.record import Record
from sandpool.controlplane.store.rows import Check, anything
from sandpool.controlplane.store.salvage import holes_of, live_of, losses_of, salvage
from sandpool.controlplane.store.sqlite_file import check_header, check_length, in_the_way, open_reader

LARGEST = 8 << 30
"""Bytes of a file that is read as a backup: all of it is in memory at once, as every live object always is."""

_SHOWN = 10
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Contents:
    """The records of a backup in the order of their keys, and what was left out of it because it is damaged."""

    records: tuple[Record, ...]
    left_out: tuple[str, ...] = ()
    sealed: bool = True  # False: an old backup, which carries no checksums
    whole: bool = True  # False: something is damaged, and what it was may not even be known


def backup(source: Path, target: Path, check: Check = anything) -> int:
    """Copies the live records of the store at `source`, which may be in use, to `target`, which appears complete or not at all.
    Answers how many they are."""
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
    with path.open("rb") as file:  # what is read next comes from the disk, not from memory
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_backup(path: Path, salvaging: bool = False, check: Check = anything) -> Contents:
    """Everything that the backup holds. Raises DamagedBackup if any of it is damaged, unless `salvaging`: then what is sound."""
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
    """The first bytes of a file that can be read as one."""
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
    """The bytes of a file. Zeros where the disk does not give them any more, and which those are."""
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
    """A backup of version 1: a database with the rows of a store, which carry no checksums. Or a store's own file."""
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
        if in_the_way(error):
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
