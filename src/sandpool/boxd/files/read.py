"""A file's bytes, whole or a part, never in memory: the kernel sends them."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from email.utils import formatdate

from sandpool.boxd.files.root import Root
from sandpool.boxd.http.reply import FromFile
from sandpool.wire.codes import Code, Refused

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


def download(root: Root, path: str, wanted: str) -> FromFile:
    """The answer to a GET; `wanted` is its Range header."""
    with root.opened(path, os.O_RDONLY | os.O_NONBLOCK) as fd:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise Refused(Code.INVALID, f"{path!r} is a folder; list it, or fetch it as a tree")
        if not stat.S_ISREG(found.st_mode):
            raise Refused(Code.INVALID, f"{path!r} is no regular file")
        headers = {
            "content-type": "application/octet-stream",
            "accept-ranges": "bytes",
            "last-modified": formatdate(found.st_mtime, usegmt=True),
        }
        part = part_of(wanted, found.st_size) if wanted else None
        file = open(os.dup(fd), "rb", buffering=0)  # noqa: SIM115  # whoever sends it closes it
    if part is None:
        return FromFile(file, 0, found.st_size, 200, headers)
    headers["content-range"] = f"bytes {part.start}-{part.start + part.length - 1}/{found.st_size}"
    return FromFile(file, part.start, part.length, 206, headers)
