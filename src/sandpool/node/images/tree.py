"""A directory tree that is filled from an untrusted archive. Every step is relative to an open directory, and no link is followed.

No other process works in this tree. The danger is in the paths of the archive: `..`, links to the outside that a later entry goes
through, hard links to files outside the tree. Standard library only: this runs in a worker process.
"""

from __future__ import annotations

import os
import stat
from types import TracebackType
from typing import Self

from sandpool.node.images.tar import BadArchive, printable
from sandpool.node.openat import DIRECTORY, clear_directory, open_directory_anyway

Path = tuple[bytes, ...]
_LONGEST_NAME = 255


def split(path: bytes, longest: int, depth: int) -> Path:
    """Splits a path into names, relative to the root of the image. A leading slash means that root, as it does inside a sandbox."""
    if len(path) > longest:
        raise BadArchive(f"a path of {len(path)} bytes, more than {longest}")
    parts = tuple(part for part in path.split(b"/") if part not in (b"", b"."))
    if len(parts) > depth:
        raise BadArchive(f"a path of {len(parts)} directories, more than {depth}")
    for part in parts:
        if part == b"..":
            raise BadArchive(f"path {printable(path)} leads out with ..")
        if len(part) > _LONGEST_NAME or b"\0" in part:
            raise BadArchive(f"path {printable(path)} has a name that no file can have")
    return parts


class Tree:
    """Works below `root`, an open directory. The directory used last stays open, because entries come directory by directory."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._last: tuple[Path, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.forget()

    def forget(self) -> None:
        """Closes the directory that was used last. Call it when a directory may have been replaced."""
        if self._last is not None:
            os.close(self._last[1])
            self._last = None

    def directory(self, path: Path) -> int:
        """An open descriptor of that directory, valid until the next call. BadArchive if it, or one above it, is not a directory."""
        if not path:
            return self._root
        if self._last is not None and self._last[0] == path:
            return self._last[1]
        fd = self._walk(path)
        self.forget()
        self._last = (path, fd)
        return fd

    def _walk(self, path: Path) -> int:
        at, start = self._root, 0
        if self._last is not None and path[: len(self._last[0])] == self._last[0]:
            start, at = len(self._last[0]), self._last[1]
        kept = at
        for number, name in enumerate(path[start:], start + 1):
            try:
                below = os.open(name, DIRECTORY, dir_fd=at)
            except OSError as error:
                raise BadArchive(_not_a_directory(path[:number], error)) from error
            finally:
                if at != kept:
                    os.close(at)
            at = below
        return at

    def stat(self, path: Path) -> os.stat_result | None:
        """As lstat; None if nothing is there."""
        if not path:
            return os.fstat(self._root)
        try:
            return os.stat(path[-1], dir_fd=self.directory(path[:-1]), follow_symlinks=False)
        except FileNotFoundError:
            return None

    def remove(self, path: Path) -> None:
        """Removes it with everything below."""
        self.forget()
        remove_entry(self.directory(path[:-1]), path[-1])


def _not_a_directory(path: Path, error: OSError) -> str:
    shown = printable(b"/".join(path))
    if error.errno in (40, 20):  # ELOOP, ENOTDIR: with O_NOFOLLOW and O_DIRECTORY, a symlink gives one or the other
        return f"an entry goes through {shown}, which is a link or a file and not a directory"
    return f"directory {shown} cannot be opened: {error.strerror}"


def remove_entry(parent: int, name: bytes) -> None:
    """Removes a file, or a directory with everything in it, whatever its modes. Does nothing if it is not there."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=parent)
        return
    directory = open_directory_anyway(name, parent)
    try:
        if stat.S_IMODE(os.fstat(directory).st_mode) & 0o700 != 0o700:
            os.fchmod(directory, 0o700)
        clear_directory(directory, remove=_unlink)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)


def _unlink(name: str, within: int) -> None:
    """Removes a file. It need not be truncated first: layers are read-only, so no process has the file open for writing."""
    os.unlink(name, dir_fd=within)
