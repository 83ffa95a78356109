"""A log as its readers want it: from a place on, as text, with or without times, to the end or as it grows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from sandpool.node.pods.logs.growth import Growth
from sandpool.node.pods.logs.place import Place, advance, beginning, last_lines
from sandpool.node.pods.logs.record import records, stamp
from sandpool.node.pods.threads import Threads


@dataclass(frozen=True, slots=True)
class Wanted:
    follow: bool = False
    tail: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit: int | None = None


@dataclass(slots=True)
class Text:
    """From records to text. Whether the next record begins a line is remembered."""

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


def _next(folder: Path, run: int, place: Place, text: Text) -> tuple[bytes, Place, bytes]:
    """Blocking: a block of short lines takes milliseconds to read, and longer to take apart."""
    block, place = advance(folder, run, place)
    return block, place, text.of(block)


async def read_log(
    folder: Path, run: int, wanted: Wanted, growth: Growth | None, threads: Threads
) -> AsyncIterator[bytes]:
    """`growth` is None for a run that is over. A reader that falls behind the rotation misses what was removed."""
    since = None if wanted.since is None else stamp(wanted.since)
    text = Text(since, wanted.timestamps, wanted.limit)
    find = (
        partial(beginning, folder, run, since) if wanted.tail is None else partial(last_lines, folder, run, wanted.tail)
    )
    place = await threads.run(find)
    while text.left is None or text.left > 0:
        more = None if growth is None or growth.over or not wanted.follow else growth.next()
        block, place, made = await threads.run(partial(_next, folder, run, place, text))
        if made:
            yield made
        elif not block:
            if more is None:
                return
            await more
