"""Reads a log for a client: from a position on, as text, with or without time stamps, to the end or as it grows.

What works on `Position` blocks and runs in a thread; every step reads a bounded amount.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from sandpool.node.pods.logs import files
from sandpool.node.pods.logs.files import Growth
from sandpool.node.pods.logs.record import TIME, decode, records, stamp
from sandpool.node.pods.threads import Threads

BLOCK = 1 << 17  # longer than the longest record


@dataclass(frozen=True, slots=True)
class Position:
    number: int  # number of the log file
    offset: int


def beginning(directory: Path, run: int, since: bytes | None = None) -> Position:
    """The start of the oldest file that can have records of that time or later."""
    known = files.numbers(directory, run)
    if not known:
        return Position(0, 0)
    start = known[0]
    for number in known[1:] if since is not None else ():
        first = _read(files.path_of(directory, run, number), 0, TIME)
        if len(first) < TIME or (since is not None and first > since):
            break
        start = number
    return Position(start, 0)


def last_lines(directory: Path, run: int, count: int) -> Position:
    """Where the last `count` lines begin. The partial records of a long line count as one."""
    known = files.numbers(directory, run)
    position = Position(known[-1] if known else 0, 0)
    if known and count <= 0:
        return Position(known[-1], _size(files.path_of(directory, run, known[-1])))
    lines, newest = 0, True
    for number in reversed(known):
        for offset, line in _backwards(files.path_of(directory, run, number)):
            record = decode(line)
            if record is not None and (record.full or newest):
                lines += 1
                if lines > count:
                    return position
            newest = newest and record is None
            position = Position(number, offset)
    return position


def advance(directory: Path, run: int, position: Position) -> tuple[bytes, Position]:
    """The next complete records and the position after them; no bytes and the same position if there are none yet."""
    while True:
        block = _read(files.path_of(directory, run, position.number), position.offset, BLOCK)
        whole = block[: block.rfind(b"\n") + 1]
        if not whole and len(block) == BLOCK:
            whole = block  # no record is this long: skip what is not one
        if whole:
            return whole, Position(position.number, position.offset + len(whole))
        later = [number for number in files.numbers(directory, run) if number > position.number]
        if not later:
            return b"", position
        # A later file exists, so this one will not grow any more; but it may have grown since we read it.
        if _size(files.path_of(directory, run, position.number)) > position.offset + len(block):
            continue
        position = Position(later[0], 0)


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
            return  # no record is this long


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


@dataclass(frozen=True, slots=True)
class Wanted:
    follow: bool = False
    tail: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit: int | None = None


@dataclass(slots=True)
class Text:
    """Turns records into text. `fresh`: the next record begins a line."""

    since: bytes | None = None
    timestamps: bool = False
    left: int | None = None
    fresh: bool = True

    def of(self, block: bytes) -> bytes:
        made = []
        for record in records(block):
            if self.since is not None and record.time < self.since:
                continue
            if self.fresh and self.timestamps:
                made.append(record.time + b" ")
            made.append(record.text + b"\n" if record.full else record.text)
            self.fresh = record.full
        text = b"".join(made)
        if self.left is not None:
            text = text[: self.left]
            self.left -= len(text)
        return text


def _next(directory: Path, run: int, position: Position, text: Text) -> tuple[bytes, Position, bytes]:
    """Reads and formats one block. Blocks: a block of short lines takes milliseconds to read, and longer to parse."""
    block, position = advance(directory, run, position)
    return block, position, text.of(block)


async def read_log(
    directory: Path, run: int, wanted: Wanted, growth: Growth | None, threads: Threads
) -> AsyncIterator[bytes]:
    """`growth` is None for a run that has ended. A reader that falls behind rotation misses the removed files."""
    since = None if wanted.since is None else stamp(wanted.since)
    text = Text(since, wanted.timestamps, wanted.limit)
    find = (
        partial(beginning, directory, run, since)
        if wanted.tail is None
        else partial(last_lines, directory, run, wanted.tail)
    )
    position = await threads.run(find)
    while text.left is None or text.left > 0:
        more = None if growth is None or growth.over or not wanted.follow else growth.next()
        block, position, made = await threads.run(partial(_next, directory, run, position, text))
        if made:
            yield made
        elif not block:
            if more is None:
                return
            await more
