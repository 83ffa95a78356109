"""A local tree as the pieces of a tar archive, in constant memory. Names in it are relative to the tree.

Files, folders and symlinks are taken; sockets, devices and what cannot be opened are named in `skipped`. A file that grows or
shrinks meanwhile keeps the size that it had when it was reached: the rest is left out, what is missing is zeros.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import suppress

PIECE = 256 * 1024


class TreePieces:
    def __init__(self, top: str) -> None:
        self._top = top
        self.files = 0
        self.size = 0
        self.skipped: list[str] = []

    def measure(self) -> int:
        """Bytes of all files, as they are now."""
        total = 0
        for path, _, files in os.walk(self._top):
            for name in files:
                with suppress(OSError):
                    found = os.lstat(os.path.join(path, name))
                    total += found.st_size if stat.S_ISREG(found.st_mode) else 0
        return total

    def __iter__(self) -> Iterator[bytes]:
        """Small members travel together: a tree of many small files is not many small writes."""
        held = bytearray()
        for piece in self._members():
            held += piece
            if len(held) >= PIECE:
                yield bytes(held)
                held.clear()
        held += bytes(2 * tarfile.BLOCKSIZE)
        yield bytes(held)

    def _members(self) -> Iterator[bytes]:
        for path, folders, files in os.walk(self._top, onerror=self._unreadable):
            below = os.path.relpath(path, self._top)
            prefix = "" if below == "." else f"{below}/"
            folders.sort()
            for name in folders + sorted(files):
                yield from self._member(os.path.join(path, name), prefix + name)

    def _unreadable(self, error: OSError) -> None:
        if error.filename == self._top:
            raise error
        self.skipped.append(os.path.relpath(error.filename, self._top))

    def _member(self, path: str, name: str) -> Iterator[bytes]:
        try:
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode):
                yield from self._file(path, name)
                return
            member = _described(name, found)
            if stat.S_ISDIR(found.st_mode):
                member.type = tarfile.DIRTYPE
            elif stat.S_ISLNK(found.st_mode):
                member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
            else:
                self.skipped.append(name)
                return
        except (FileNotFoundError, PermissionError):
            self.skipped.append(name)
            return
        yield _head(member)

    def _file(self, path: str, name: str) -> Iterator[bytes]:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                self.skipped.append(name)
                return
            member = _described(name, found)
            member.size = found.st_size
            yield _head(member)
            left = member.size
            while left:
                piece = file.read(min(PIECE, left)) or bytes(min(PIECE, left))
                left -= len(piece)
                self.size += len(piece)
                yield piece
            self.files += 1
            yield bytes(-member.size % tarfile.BLOCKSIZE)


def _described(name: str, found: os.stat_result) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mode, member.mtime = stat.S_IMODE(found.st_mode), int(found.st_mtime)
    return member


def _head(member: tarfile.TarInfo) -> bytes:
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
