"""The log format of the container runtime interface (CRI): `2026-01-02T03:04:05.678901000Z stdout F text`. Pure.

Time and stream have fixed widths, so a record is read without searching for its parts. A line that is longer than LONGEST, or that does
not end, is written in parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

LONGEST = 16384
STREAMS = {1: b"stdout", 2: b"stderr"}
TIME = 30  # bytes
HEAD = TIME + 10  # bytes before the text
_FULL, _PART = b"F", b"P"


class Record(NamedTuple):
    time: bytes
    full: bool  # a line ends here
    text: bytes


def stamp(moment: datetime) -> bytes:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode().rjust(TIME, b"0")


def encode(time: bytes, stream: int, data: bytes) -> tuple[bytes, bytes]:
    """Records for the complete lines in `data`, and the rest, which is shorter than LONGEST."""
    full, part = (b"%s %s %s " % (time, STREAMS[stream], flag) for flag in (_FULL, _PART))
    lines = data.split(b"\n")
    rest = lines.pop()
    if len(rest) <= LONGEST and max(map(len, lines), default=0) <= LONGEST:
        # The usual case, and many times as fast for short lines: meanwhile this thread holds the interpreter lock.
        return (full + (b"\n" + full).join(lines) + b"\n" if lines else b""), rest
    made = []
    for line in lines:
        made += [part + line[start : start + LONGEST] for start in range(0, _last(len(line)), LONGEST)]
        made.append(full + line[_last(len(line)) :])
    made += [part + rest[start : start + LONGEST] for start in range(0, _last(len(rest)), LONGEST)]
    made.append(b"")
    return b"\n".join(made), rest[_last(len(rest)) :]


def _last(length: int) -> int:
    """Where the last part of a line of this length begins."""
    return 0 if length <= LONGEST else (length - 1) // LONGEST * LONGEST


def unfinished(time: bytes, stream: int, rest: bytes) -> bytes:
    """The record of a line that never ended."""
    return b"%s %s %s %s\n" % (time, STREAMS[stream], _PART, rest)


def decode(line: bytes) -> Record | None:
    """Parses a line without its line end; None if it is not a record: a crash may have cut it."""
    if len(line) < HEAD or line[TIME : TIME + 1] != b" " or line[HEAD - 2 : HEAD - 1] not in (_FULL, _PART):
        return None
    return Record(line[:TIME], line[HEAD - 2 : HEAD - 1] == _FULL, line[HEAD:])


def records(block: bytes) -> Iterator[Record]:
    """The records of a block of whole lines."""
    for line in block.split(b"\n"):
        record = decode(line)
        if record is not None:
            yield record
