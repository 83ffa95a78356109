"""A file's bytes, whole or a part, never more of them in memory than one piece."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from email.utils import formatdate

from sandpool.boxd.files.root import Root
from sandpool.boxd.http.reply import Reply, Streamed
from sandpool.wire.codes import Code, Refused

PIECE = 256 * 1024
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True, slots=True)
class Part:
    start: int
    length: int


def part_of(text: str, size: int) -> Part | None:
    """What a Range header asks for; None: the whole file, also for what we do not understand, as HTTP wants it."""
    found = _RANGE.fullmatch(text.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        length = min(int(found[2]), size)
        return Part(size - length, length) if length else _outside(size)
    start = int(found[1])
    end = min(int(found[2]), size - 1) if found[2] else size - 1
    if start >= size:
        return _outside(size)
    return Part(start, end - start + 1) if end >= start else None


def _outside(size: int) -> Part:
    raise Refused(Code.RANGE, f"the range lies outside of the file's {size} bytes")


def download(root: Root, path: str, wanted: str) -> Reply | Streamed:
    """The answer to a GET; `wanted` is its Range header."""
    with root.opened(path, os.O_RDONLY | os.O_NONBLOCK) as fd:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise Refused(Code.INVALID, f"{path!r} is a folder; ask for ?list or ?tar")
        if not stat.S_ISREG(found.st_mode):
            raise Refused(Code.INVALID, f"{path!r} is no regular file")
        headers = {
            "content-type": "application/octet-stream",
            "accept-ranges": "bytes",
            "last-modified": formatdate(found.st_mtime, usegmt=True),
        }
        part = part_of(wanted, found.st_size) if wanted else None
        kept = os.dup(fd)
    if part is None:
        return Streamed(_pieces(kept, Part(0, found.st_size)), 200, headers, found.st_size)
    headers["content-range"] = f"bytes {part.start}-{part.start + part.length - 1}/{found.st_size}"
    return Streamed(_pieces(kept, part), 206, headers, part.length)


class _Open:
    """Closes a file even if nobody ever starts to read it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def _pieces(fd: int, part: Part) -> AsyncGenerator[bytes, None]:
    return _read(_Open(fd), part)


async def _read(file: _Open, part: Part) -> AsyncGenerator[bytes, None]:
    at, end = part.start, part.start + part.length
    while at < end:
        piece = os.pread(file.fd, min(PIECE, end - at), at)
        if not piece:  # it was cut short meanwhile: the length that we promised cannot be kept
            raise ConnectionResetError("the file became shorter while it was read")
        at += len(piece)
        yield piece
        await asyncio.sleep(0)  # page cache to socket never waits by itself; others want a turn
