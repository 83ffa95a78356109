"""A folder that is filled by untrusted instructions: every step is taken from an open folder, and no link is ever followed.

Nobody else works in this folder. What must be kept out are paths of the archive that lead elsewhere: `..`, links to the outside that a
later entry goes through, hard links to what is not there. Standard library only: this runs in a worker process.
"""

from __future__ import annotations

import os
import stat
from types import TracebackType
from typing import Self

from sandpool.node.images.tar import BadArchive, show
from sandpool.node.openat import FOLDER, open_folder_anyway

Path = tuple[bytes, ...]
_LONGEST_NAME = 255


def split(path: bytes, longest: int, depth: int) -> Path:
    """The names on the way, from the root of the image: a leading slash means that root, as it does inside a sandbox."""
    if len(path) > longest:
        raise BadArchive(f"a path of {len(path)} bytes, more than {longest}")
    parts = tuple(part for part in path.split(b"/") if part not in (b"", b"."))
    if len(parts) > depth:
        raise BadArchive(f"a path of {len(parts)} folders, more than {depth}")
    for part in parts:
        if part == b"..":
            raise BadArchive(f"path {show(path)} leads out with ..")
        if len(part) > _LONGEST_NAME or b"\0" in part:
            raise BadArchive(f"path {show(path)} has a name that no file can have")
    return parts


class Tree:
    """Its root is an open folder. The folder that was used last stays open, since entries come folder by folder."""

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
        """A folder may have become something else."""
        if self._last is not None:
            os.close(self._last[1])
            self._last = None

    def folder(self, path: Path) -> int:
        """That folder, open until the next call. BadArchive if it, or one on the way, is none."""
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
                below = os.open(name, FOLDER, dir_fd=at)
            except OSError as error:
                raise BadArchive(_not_a_folder(path[:number], error)) from error
            finally:
                if at != kept:
                    os.close(at)
            at = below
        return at

    def stat(self, path: Path) -> os.stat_result | None:
        """What is there itself, not what it leads to. None if nothing is."""
        if not path:
            return os.fstat(self._root)
        try:
            return os.stat(path[-1], dir_fd=self.folder(path[:-1]), follow_symlinks=False)
        except FileNotFoundError:
            return None

    def remove(self, path: Path) -> None:
        """With all that is below."""
        self.forget()
        empty_out(self.folder(path[:-1]), path[-1])


def _not_a_folder(path: Path, error: OSError) -> str:
    shown = show(b"/".join(path))
    if error.errno in (40, 20):  # ELOOP, ENOTDIR: with both flags a symlink is one or the other
        return f"an entry goes through {shown}, which is a link or a file and not a folder"
    return f"folder {shown} cannot be opened: {error.strerror}"


def empty_out(parent: int, name: bytes) -> None:
    """Removes a file, or a folder whatever is in it and whatever its modes forbid. Never follows a link, nor recurses."""
    if not _removed(parent, name):
        _remove_folder(parent, name)


def _removed(parent: int, name: bytes) -> bool:
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(found.st_mode):
        return False
    os.unlink(name, dir_fd=parent)
    return True


def _remove_folder(parent: int, name: bytes) -> None:
    opened = [(name, _open_to_empty(parent, name))]
    below = [_empty_of_files(opened[0][1])]
    try:
        while opened:
            here, fd = opened[-1]
            if below[-1]:
                child = below[-1].pop()
                opened.append((child, _open_to_empty(fd, child)))
                below.append(_empty_of_files(opened[-1][1]))
                continue
            os.rmdir(here, dir_fd=opened[-2][1] if len(opened) > 1 else parent)
            opened.pop()
            below.pop()
            os.close(fd)
    finally:
        for _, fd in opened:
            os.close(fd)


def _empty_of_files(fd: int) -> list[bytes]:
    """Removes the files in it; answers the folders that are left."""
    return [name for name in map(os.fsencode, os.listdir(fd)) if not _removed(fd, name)]


def _open_to_empty(parent: int, name: bytes) -> int:
    """An ordinary user may own a folder whose mode keeps even the owner out."""
    fd = open_folder_anyway(name, parent)
    if os.geteuid() != 0 and os.fstat(fd).st_mode & 0o700 != 0o700:
        os.fchmod(fd, 0o700)
    return fd
