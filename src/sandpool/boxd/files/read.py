"""Reads files: metadata of a file, the entries of a directory, and a file's bytes, whole or a range.

Contents are never held in memory: the kernel sends them (sendfile).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

from sandpool.boxd.files.root import Place, Root, refusals
from sandpool.boxd.http.reply import FromFile
from sandpool.wire.codes import Code, Refused

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True, slots=True)
class Part:
    start: int
    length: int


def part_of(text: str, size: int) -> Part | None:
    """The range that a Range header asks for; None: the whole file, also if the header is not understood, as HTTP requires."""
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
    raise Refused(Code.RANGE, f"the range is outside of the file's {size} bytes")


def download(root: Root, path: str, wanted: str) -> FromFile:
    """The response to a GET; `wanted` is its Range header."""
    with root.opened(path, os.O_RDONLY | os.O_NONBLOCK) as fd:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise Refused(Code.INVALID, f"{path!r} is a directory; list it, or download it as a tree")
        if not stat.S_ISREG(found.st_mode):
            raise Refused(Code.INVALID, f"{path!r} is not a regular file")
        headers = {
            "content-type": "application/octet-stream",
            "accept-ranges": "bytes",
            "last-modified": formatdate(found.st_mtime, usegmt=True),
        }
        part = part_of(wanted, found.st_size) if wanted else None
        file = open(os.dup(fd), "rb", buffering=0)  # noqa: SIM115  # the sender closes it
    if part is None:
        return FromFile(file, 0, found.st_size, 200, headers)
    headers["content-range"] = f"bytes {part.start}-{part.start + part.length - 1}/{found.st_size}"
    return FromFile(file, part.start, part.length, 206, headers)


MOST_ENTRIES = 100_000


def info(place: Place, name: str) -> dict[str, Any]:
    """Metadata of the file at a place; does not follow a symlink."""
    found = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    value: dict[str, Any] = {
        "name": name,
        "type": type_of(found.st_mode),
        "size": found.st_size,
        "mode": f"{stat.S_IMODE(found.st_mode):04o}",
        "modified": found.st_mtime,
        "uid": found.st_uid,
        "gid": found.st_gid,
    }
    if stat.S_ISLNK(found.st_mode):
        value["target"] = os.readlink(place.name, dir_fd=place.directory)
    return value


def stat_of(root: Root, path: str, *, follow: bool = True) -> dict[str, Any]:
    name = os.path.basename(path.rstrip("/")) or "/"
    with root.place(path, follow=follow) as place, refusals(path):
        return info(place, name)


def entries(root: Root, path: str, describe: Callable[[Place, str], Any] = info) -> list[Any]:
    """The entries of a directory, sorted by name. One that is removed meanwhile, or for which `describe` returns None, is left out."""
    found = []
    with root.opened(path, os.O_RDONLY | os.O_DIRECTORY) as directory, refusals(path):
        for name in sorted(os.listdir(directory))[:MOST_ENTRIES]:
            try:
                value = describe(Place(directory, name), name)
            except FileNotFoundError:
                continue
            if value is not None:
                found.append(value)
    return found


def type_of(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"
