"""Resolves and creates paths inside a hostile root file system: links never lead out of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar

from sandpool.node.openat import open_path, set_mode, set_owner
from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.frames import Refused

INSIDE = kernel.RESOLVE_IN_ROOT | kernel.RESOLVE_NO_MAGICLINKS
MOST_PARTS = 64

Owner = tuple[int, int]
T = TypeVar("T")


def find(root: int, path: str, flags: int = os.O_PATH) -> int:
    """Opens a path as a process with that root would."""
    return kernel.openat2(root, path.lstrip("/") or ".", flags, INSIDE)


def parts(path: str) -> list[str]:
    """The components of a path; refuses `..` and too many."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names or len(names) > MOST_PARTS:
        raise Refused("InvalidPath", f"{path!r} must not contain '..' or more than {MOST_PARTS} parts")
    return names


def make_directory(root: int, path: str, owner: Owner, mode: int = 0o755) -> int:
    """An O_PATH descriptor of the directory, created with missing parents."""
    names = parts(path)
    here = os.dup(root)
    for depth, name in enumerate(names, start=1):
        inside = "/".join(names[:depth])
        try:
            found = _step(root, here, inside, name, owner, mode)
        finally:
            os.close(here)
        here = found
    return here


def make_file(root: int, path: str, owner: Owner) -> int:
    """An O_PATH descriptor of the file, created empty if it is missing."""
    names = parts(path)
    if not names:
        raise Refused("InvalidPath", "a file cannot be mounted on the root")
    parent = make_directory(root, "/".join(names[:-1]), owner)
    try:
        try:
            return find(root, "/".join(names))
        except FileNotFoundError:
            flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY
            made = _made(root, parent, lambda: os.open(names[-1], flags, 0o644, dir_fd=parent), owner)
            try:
                os.fchown(made, *owner)
            finally:
                os.close(made)
            return find(root, "/".join(names))
    except FileExistsError:
        raise Refused("InvalidPath", f"/{'/'.join(names)} is a dangling link") from None
    finally:
        os.close(parent)


def _step(root: int, here: int, inside: str, name: str, owner: Owner, mode: int) -> int:
    try:
        return find(root, inside, os.O_PATH | os.O_DIRECTORY)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise Refused("InvalidPath", f"/{inside} is not a directory") from error
        raise
    try:
        _made(root, here, lambda: os.mkdir(name, mode, dir_fd=here), owner)
    except FileExistsError:
        pass  # a dangling link, or another process was faster
    else:
        if not _in_a_volume(root, here):
            _give(here, name, owner)
    try:
        made = find(root, inside, os.O_PATH | os.O_DIRECTORY)
    except FileNotFoundError:
        raise Refused("InvalidPath", f"/{inside} is a dangling link") from None
    if mode & 0o1000:
        set_mode(made, mode)
    return made


def _made(root: int, here: int, make: Callable[[], T], owner: Owner) -> T:
    """Creates something. In a volume, it belongs to the sandbox's root from the beginning: another container may replace it at once, and a later
    chown would change the owner of the replacement. And where owners are mapped, no other owner is possible."""
    if not _in_a_volume(root, here):
        return make()
    kernel.prctl(kernel.PR_SET_SECUREBITS, kernel.SECBIT_NO_SETUID_FIXUP)
    try:
        kernel.touch_files_as(*owner)
        return make()
    finally:
        kernel.touch_files_as(os.geteuid(), os.getegid())
        kernel.prctl(kernel.PR_SET_SECUREBITS, 0)


def _in_a_volume(root: int, here: int) -> bool:
    """Whether it is on another file system than the root. The root itself is not used by any other process yet."""
    return os.fstat(here).st_dev != os.fstat(root).st_dev


def _give(here: int, name: str, owner: Owner) -> None:
    made = open_path(name, here, os.O_DIRECTORY)
    try:
        set_owner(made, *owner)
    finally:
        os.close(made)


def read_small(root: int, path: str, most: int = 1 << 20) -> str:
    """The text of a file inside, up to `most` bytes. Empty if it cannot be read: it may be missing, huge, a device, or not text."""
    try:
        file = find(root, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return ""
    try:
        return os.read(file, most).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(file)
