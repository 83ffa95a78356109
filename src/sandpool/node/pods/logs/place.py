"""One's place in a log, and how to move on from it. Blocking; every step reads a bounded amount."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandpool.node.pods.logs import files
from sandpool.node.pods.logs.record import TIME, decode

BLOCK = 1 << 17  # longer than the longest record


@dataclass(frozen=True, slots=True)
class Place:
    number: int  # of the file
    offset: int


def beginning(folder: Path, run: int, since: bytes | None = None) -> Place:
    """The oldest file that can hold something of that time."""
    known = files.numbers(folder, run)
    if not known:
        return Place(0, 0)
    start = known[0]
    for number in known[1:] if since is not None else ():
        first = _read(files.path_of(folder, run, number), 0, TIME)
        if len(first) < TIME or (since is not None and first > since):
            break
        start = number
    return Place(start, 0)


def last_lines(folder: Path, run: int, count: int) -> Place:
    """Where the last so many lines begin. Parts of a line are one line."""
    known = files.numbers(folder, run)
    place = Place(known[-1] if known else 0, 0)
    if known and count <= 0:
        return Place(known[-1], _size(files.path_of(folder, run, known[-1])))
    lines, newest = 0, True
    for number in reversed(known):
        for offset, line in _backwards(files.path_of(folder, run, number)):
            record = decode(line)
            if record is not None and (record.full or newest):
                lines += 1
                if lines > count:
                    return place
            newest = newest and record is None
            place = Place(number, offset)
    return place


def advance(folder: Path, run: int, place: Place) -> tuple[bytes, Place]:
    """The next whole records and the place after them. Nothing, at the same place: there is no more for now."""
    while True:
        block = _read(files.path_of(folder, run, place.number), place.offset, BLOCK)
        whole = block[: block.rfind(b"\n") + 1]
        if not whole and len(block) == BLOCK:
            whole = block  # no record is so long: it is no record, and passed over
        if whole:
            return whole, Place(place.number, place.offset + len(whole))
        later = [number for number in files.numbers(folder, run) if number > place.number]
        if not later:
            return b"", place
        # The file after it exists, so this one has grown for the last time, and perhaps since we read it.
        if _size(files.path_of(folder, run, place.number)) > place.offset + len(block):
            continue
        place = Place(later[0], 0)


def _backwards(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, last first, each with its offset."""
    end = _size(path)
    rest = b""
    while end > 0:
        start = max(0, end - BLOCK)
        block = _read(path, start, end - start) + rest
        lines = block.split(b"\n")
        rest = lines[0] if start > 0 else b""
        offset = start + len(block)
        for line in reversed(lines[1:] if start > 0 else lines):
            offset -= len(line)
            if line:
                yield offset, line
            offset -= 1
        end = start
        if len(rest) > BLOCK:
            return  # no record is so long


def _read(path: Path, offset: int, size: int) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            return file.read(size)
    except FileNotFoundError:
        return b""


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
