"""Paths below one folder, resolved step by step with open folders, so that no symlink and no race leads out of it.

A path may be absolute inside the root, or begin with the root's own path. Symlinks are followed as long as they stay inside; what
would leave is refused, whatever somebody does to the tree at the same time.
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
    """Where something is, or would be: an open folder, and a name in it. The root itself has the name "."."""

    folder: int
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
        """The place of a path. Its last name may be missing; with `follow` it is no symlink. With `parents`, folders that
        are missing on the way are made."""
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
        """The path as seen from the root."""
        if "\0" in path or len(path) > _LONGEST:
            raise Refused(Code.INVALID, "a path may not hold null characters or be longer than 4,096 characters")
        return "" if path == self.path else path.removeprefix(self._prefix)

    def leads_inside(self, target: str) -> str | None:
        """Where an absolute symlink leads as seen from the root; None: out of it."""
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
        self._folders: list[int] = []  # opened on the way, below the root
        self._names: list[str] = []  # theirs
        self._left = deque(_names(root.inside(path)))
        self._links = 0

    @property
    def _here(self) -> int:
        return self._folders[-1] if self._folders else self._root.fd

    def close(self) -> None:
        while self._folders:
            self._leave()

    def _leave(self) -> None:
        self._names.pop()
        os.close(self._folders.pop())

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
        """The path ended with `..` or a symlink to a folder on the way, or it is the root."""
        if not self._folders:
            return Place(self._root.fd, ".")
        return Place(self._folders[-2] if len(self._folders) > 1 else self._root.fd, self._names[-1])

    def _step(self, name: str, *, last: bool) -> bool:
        """Goes on by one name. False: it is the last one, and it is here."""
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
                self._turn(os.readlink("", dir_fd=fd))
            finally:
                os.close(fd)
            return True
        if last:
            os.close(fd)
            return False
        if not stat.S_ISDIR(mode):
            os.close(fd)
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        self._folders.append(fd)
        self._names.append(name)
        return True

    def _turn(self, target: str) -> None:
        """A symlink: the rest of the way begins where it leads."""
        self._links += 1
        if self._links > _MOST_LINKS:
            raise Refused(Code.INVALID, f"{self._path!r} leads through too many symlinks")
        if target.startswith("/"):
            inside = self._root.leads_inside(target)
            if inside is None:
                raise self._escape()
            self.close()
            target = inside
        self._left.extendleft(reversed(_names(target)))

    def _up(self) -> None:
        if not self._folders:
            if self._root.path == "/":
                return
            raise self._escape()
        self._leave()

    def _escape(self) -> Refused:
        return Refused(Code.DENIED, f"{self._path!r} leads out of {self._root.path}")


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def open_at(place: Place, flags: int, mode: int = 0o600) -> int:
    """What is at a place. It never follows a symlink: those were followed on the way."""
    return os.open(place.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=place.folder)


@contextmanager
def refusals(path: str) -> Iterator[None]:
    """What the kernel refuses, in the client's words."""
    try:
        yield
    except OSError as error:
        raise refused(path, error) from None


def refused(path: str, error: OSError) -> Refused:
    match error.errno:
        case errno.ENOENT:
            return Refused(Code.NOT_FOUND, f"{path!r} does not exist")
        case errno.ENOTDIR:
            return Refused(Code.INVALID, f"a part of {path!r} is not a folder")
        case errno.EISDIR:
            return Refused(Code.INVALID, f"{path!r} is a folder")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return Refused(Code.DENIED, f"{path!r}: {os.strerror(error.errno)}")
        case errno.EEXIST:
            return Refused(Code.CONFLICT, f"{path!r} is there already")
        case errno.ENOTEMPTY:
            return Refused(Code.CONFLICT, f"{path!r} is not empty; remove it with recursive=true")
        case errno.ELOOP:
            return Refused(Code.CONFLICT, f"{path!r} was changed into a symlink meanwhile")
        case errno.ENOSPC | errno.EDQUOT:
            return Refused(Code.NO_SPACE, f"no space left for {path!r}")
        case errno.ENAMETOOLONG:
            return Refused(Code.INVALID, f"a name in {path!r} is too long")
        case errno.EXDEV:
            return Refused(Code.INVALID, f"{path!r} is on another volume; copy it and remove it instead")
    return Refused(Code.INTERNAL, f"{path!r}: {error.strerror or error}")
