"""The text format of the container runtime interface: `2026-01-02T03:04:05.678901000Z stdout F text`. Pure.

Time and stream always have the same width, so that a record is read without looking for its parts. A line that is longer than
LONGEST, or that has no end, is written in parts.
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
    """Records for all that is complete in `data`, and the rest, shorter than a longest line."""
    full, part = (b"%s %s %s " % (time, STREAMS[stream], flag) for flag in (_FULL, _PART))
    lines = data.split(b"\n")
    rest = lines.pop()
    if len(rest) <= LONGEST and max(map(len, lines), default=0) <= LONGEST:
        # Nearly always, and many times as fast for short lines: whoever serves others waits for the interpreter meanwhile.
        return (full + (b"\n" + full).join(lines) + b"\n" if lines else b""), rest
    made = []
    for line in lines:
        made += [part + line[start : start + LONGEST] for start in range(0, _last(len(line)), LONGEST)]
        made.append(full + line[_last(len(line)) :])
    made += [part + rest[start : start + LONGEST] for start in range(0, _last(len(rest)), LONGEST)]
    made.append(b"")
    return b"\n".join(made), rest[_last(len(rest)) :]


def _last(length: int) -> int:
    """Where the last piece of so long a line begins."""
    return 0 if length <= LONGEST else (length - 1) // LONGEST * LONGEST


def unfinished(time: bytes, stream: int, rest: bytes) -> bytes:
    """The record of a line that never ended."""
    return b"%s %s %s %s\n" % (time, STREAMS[stream], _PART, rest)


def decode(line: bytes) -> Record | None:
    """A line of a file without its end; None for what is no record: a crash may have cut one."""
    if len(line) < HEAD or line[TIME : TIME + 1] != b" " or line[HEAD - 2 : HEAD - 1] not in (_FULL, _PART):
        return None
    return Record(line[:TIME], line[HEAD - 2 : HEAD - 1] == _FULL, line[HEAD:])


def records(block: bytes) -> Iterator[Record]:
    """Of a block of whole lines."""
    for line in block.split(b"\n"):
        record = decode(line)
        if record is not None:
            yield record
