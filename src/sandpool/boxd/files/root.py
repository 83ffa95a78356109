"""Resolves paths below one directory step by step, through open directories, so that no symlink and no race leads out of it.

A path may be absolute inside the root, or begin with the root's own path. Symlinks are followed as long as they stay inside; a path that
would leave the root is refused, whatever processes do to the tree at the same time.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandpool.wire.codes import Code, Refused

_MOST_LINKS = 40
_LONGEST = 4096
_WALK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is or would be: an open directory and a name in it. The root itself has the name "."."""

    directory: int
    name: str

    @property
    def is_root(self) -> bool:
        return self.name == "."


class Root:
    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)
        self._prefix = self.path.rstrip("/") + "/"
        self._fd = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._fd)

    @contextmanager
    def place(self, path: str, *, follow: bool = True, parents: bool = False) -> Iterator[Place]:
        """Resolves a path. The last component may not exist; with `follow`, it is not a symlink. With `parents`, missing directories on the
        way are created."""
        walk = _Walk(self, path, follow=follow, parents=parents)
        try:
            with refusals(path):
                found = walk.go()
            yield found
        finally:
            walk.close()

    @contextmanager
    def opened(self, path: str, flags: int) -> Iterator[int]:
        with self.place(path) as place, refusals(path):
            fd = open_at(place, flags)
        try:
            yield fd
        finally:
            os.close(fd)

    def inside(self, path: str) -> str:
        """The path relative to the root."""
        if "\0" in path or len(path) > _LONGEST:
            raise Refused(Code.INVALID, "a path may not contain null characters or be longer than 4,096 characters")
        return "" if path == self.path else path.removeprefix(self._prefix)

    def leads_inside(self, target: str) -> str | None:
        """The target of an absolute symlink relative to the root; None if it is outside."""
        clean = os.path.normpath(target)
        if clean == self.path:
            return ""
        return clean[len(self._prefix) :] if clean.startswith(self._prefix) else None

    @property
    def fd(self) -> int:
        return self._fd


class _Walk:
    def __init__(self, root: Root, path: str, *, follow: bool, parents: bool) -> None:
        self._root = root
        self._path = path
        self._follow = follow
        self._parents = parents
        self._directories: list[int] = []  # open directories from the root down to here
        self._names: list[str] = []  # their names
        self._left = deque(_names(root.inside(path)))
        self._links = 0

    @property
    def _here(self) -> int:
        return self._directories[-1] if self._directories else self._root.fd

    def close(self) -> None:
        while self._directories:
            self._leave()

    def _leave(self) -> None:
        self._names.pop()
        os.close(self._directories.pop())

    def go(self) -> Place:
        while self._left:
            name = self._left.popleft()
            if name == "..":
                self._up()
                continue
            last = not self._left
            if last and not self._follow:
                return Place(self._here, name)
            if not self._step(name, last=last):
                return Place(self._here, name)
        return self._landed()

    def _landed(self) -> Place:
        """The place where the walk stopped: the path ended with `..` or a symlink to a parent, or it is the root."""
        if not self._directories:
            return Place(self._root.fd, ".")
        return Place(self._directories[-2] if len(self._directories) > 1 else self._root.fd, self._names[-1])

    def _step(self, name: str, *, last: bool) -> bool:
        """Resolves one component. False: it is the last one, and belongs to the directory reached so far."""
        try:
            fd = os.open(name, _WALK, dir_fd=self._here)
        except FileNotFoundError:
            if last:
                return False
            if not self._parents:
                raise
            os.mkdir(name, 0o755, dir_fd=self._here)
            fd = os.open(name, _WALK, dir_fd=self._here)
        mode = os.fstat(fd).st_mode
        if stat.S_ISLNK(mode):
            try:
                self._follow_link(os.readlink("", dir_fd=fd))
            finally:
                os.close(fd)
            return True
        if last:
            os.close(fd)
            return False
        if not stat.S_ISDIR(mode):
            os.close(fd)
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        self._directories.append(fd)
        self._names.append(name)
        return True

    def _follow_link(self, target: str) -> None:
        """Continues at the target of a symlink."""
        self._links += 1
        if self._links > _MOST_LINKS:
            raise Refused(Code.INVALID, f"{self._path!r} goes through too many symlinks")
        if target.startswith("/"):
            inside = self._root.leads_inside(target)
            if inside is None:
                raise self._escape()
            self.close()
            target = inside
        self._left.extendleft(reversed(_names(target)))

    def _up(self) -> None:
        if not self._directories:
            if self._root.path == "/":
                return
            raise self._escape()
        self._leave()

    def _escape(self) -> Refused:
        return Refused(Code.DENIED, f"{self._path!r} leads out of {self._root.path}")


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def open_at(place: Place, flags: int, mode: int = 0o600) -> int:
    """Opens the file at a place. Never follows a symlink: `Root.place` has followed them already."""
    return os.open(place.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=place.directory)


@contextmanager
def refusals(path: str) -> Iterator[None]:
    """Turns errors of the kernel into Refused, with the path that the client sent."""
    try:
        yield
    except OSError as error:
        raise refused(path, error) from None


def refused(path: str, error: OSError) -> Refused:
    match error.errno:
        case errno.ENOENT:
            return Refused(Code.NOT_FOUND, f"{path!r} does not exist")
        case errno.ENOTDIR:
            return Refused(Code.INVALID, f"a part of {path!r} is not a directory")
        case errno.EISDIR:
            return Refused(Code.INVALID, f"{path!r} is a directory")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return Refused(Code.DENIED, f"{path!r}: {os.strerror(error.errno)}")
        case errno.EEXIST:
            return Refused(Code.CONFLICT, f"{path!r} already exists")
        case errno.ENOTEMPTY:
            return Refused(Code.CONFLICT, f"{path!r} is not empty; remove it with recursive=true")
        case errno.ELOOP:
            return Refused(Code.CONFLICT, f"{path!r} was replaced by a symlink meanwhile")
        case errno.ENOSPC | errno.EDQUOT:
            return Refused(Code.NO_SPACE, f"no space left for {path!r}")
        case errno.ENAMETOOLONG:
            return Refused(Code.INVALID, f"a name in {path!r} is too long")
        case errno.EXDEV:
            return Refused(Code.INVALID, f"{path!r} is on another volume; copy it and remove it instead")
    return Refused(Code.INTERNAL, f"{path!r}: {error.strerror or error}")
