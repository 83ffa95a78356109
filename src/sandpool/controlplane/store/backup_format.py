"""The bytes of a backup: a line that says what it is, the records one after the other, the list of their keys, and the end. Pure.

Each record has a checksum of its own (CRC-32 of its head, and of all of it) and its number, so that damage is named and the sound ones can
be told from the others; the SHA-256 at the end covers every byte before it, so that nothing goes unnoticed. The list of keys
tells what a record was whose own bytes do not.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from zlib import crc32

import msgspec

from sandpool.controlplane.store.record import Record
from sandpool.controlplane.store.rows import legible
from sandpool.model.metadata import NO_REVISION, Revision

VERSION = 2  # 1 were databases without checksums
TITLE = b"sandpool-backup %d\n"

_RECORD, _KEYS, _END = b"\x1eSPR", b"\x1eSPK", b"\x1eSPE"  # a byte that neither JSON nor a key holds comes first
_HEAD = struct.Struct(">4sIIIQQ")  # which kind of block, number, length of the key, of the value, revision, created
_CHECKSUM = struct.Struct(">I")
_LAST = struct.Struct(">4sIQ")  # the end: how many records, the revision of the store
_DIGEST = hashlib.sha256().digest_size
_NEXT = re.compile(b"\x1eSP[RKE]")


def encode(records: Iterable[Record], revision: Revision) -> Iterator[bytes]:
    """A backup, in pieces to be written one after the other."""
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
    """What a backup holds. It is sound if there are no problems."""

    records: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    lost: list[str] = field(
        default_factory=list
    )  # the keys of records that are damaged or missing, where they are known
    ended: bool = False
    unaltered: bool = False  # every byte is what was written


def version_of(start: bytes) -> int | None:
    """Of the first bytes of a file: the version of a backup, None if it does not begin as one does."""
    found = re.match(rb"sandpool-backup (\d{1,6})\n", start)
    return int(found[1]) if found else None


def parse(data: bytes) -> Parsed:
    """Reads a backup, and goes on behind whatever is damaged."""
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
    numbers: dict[int, str] = field(default_factory=dict)  # of sound records
    damaged: dict[int, str] = field(default_factory=dict)  # of others whose head is sound
    keys: list[str] | None = None
    expected: int | None = None


def _take(data: bytes, position: int, found: Parsed, seen: _Seen) -> int:
    """One block, or what stands in the place of one; answers where the next begins."""
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
        found.problems.append(f"record {number} ({record.key}) at byte {position} stands there for the second time")
        return
    if number != len(seen.numbers) and not found.problems:
        found.problems.append(f"record {number} ({record.key}) at byte {position} is not in its place")
    seen.numbers[number] = record.key
    found.records.append(record)


def _ending(data: bytes, position: int, found: Parsed, seen: _Seen) -> int:
    """Where the file should end; 0 if this is not an intact end."""
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
