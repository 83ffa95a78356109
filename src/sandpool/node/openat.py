"""Walking, measuring, changing and removing files that a sandbox may exchange at any moment: by open descriptors, never by name.

What is changed is what was opened, not what a name leads to by then: `os.chmod` with a name and an open directory follows a link that took
the name's place; nothing here does. However deep, wide or closed a tree is, it takes few open files and little memory. Standard library
only: workers that may import nothing else use it, too. All of it blocks. Errors are OSError.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Callable, Generator, Sequence

PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_FDCWD, _AT_EMPTY_PATH, _AT_SYMLINK_FOLLOW = -100, 0x1000, 0x400
_OPEN_TO_OWNER = 0o700
_MOST_LEVELS = 24  # below which directories are moved up before they are removed

_libc = ctypes.CDLL(None, use_errno=True)


def open_path(name: str | bytes, within: int | None = None, more: int = 0) -> int:
    """An O_PATH descriptor of what has this name now; a symbolic link is not followed."""
    return os.open(name, PATH_ONLY | more, dir_fd=within)


def set_mode(file: int, mode: int) -> None:
    """Also works on an O_PATH descriptor. A symbolic link has no mode: that is an error, and nothing is followed."""
    os.chmod(f"/proc/self/fd/{file}", mode)


def set_owner(file: int, uid: int, gid: int) -> None:
    """Also works on an O_PATH descriptor, and on a symbolic link itself."""
    if _libc.fchownat(file, b"", ctypes.c_uint(uid), ctypes.c_uint(gid), _AT_EMPTY_PATH) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "fchownat")


def link_descriptor(file: int, name: str, within: int) -> None:
    """Hard-links an O_PATH descriptor. FileExistsError if the name exists."""
    source = os.fsencode(f"/proc/self/fd/{file}")
    if _libc.linkat(_AT_FDCWD, source, within, os.fsencode(name), _AT_SYMLINK_FOLLOW) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "linkat")


def open_directory_anyway(name: str | bytes, within: int) -> int:
    """Opens a directory to read and empty it, even if its mode denies that to its owner. NotADirectoryError if it is a link."""
    try:
        return os.open(name, DIRECTORY, dir_fd=within)
    except PermissionError:
        directory = open_path(name, within, os.O_DIRECTORY)
    try:
        set_mode(directory, _OPEN_TO_OWNER)
        return os.open(".", DIRECTORY, dir_fd=directory)
    finally:
        os.close(directory)


def remove_file(name: str | bytes, within: int | None = None) -> None:
    """Removes a file that is not a directory. A regular file that loses its last name is truncated first: mounts of an ended container or
    the cache of an overlay may still hold it, and it would stay on the disk."""
    found = os.stat(name, dir_fd=within, follow_symlinks=False)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_blocks:
        with contextlib.suppress(
            OSError
        ):  # a running program or a leased file: a process holds it, and pods/hidden.py counts it
            _truncate(name, within)
    os.unlink(name, dir_fd=within)


def _truncate(name: str | bytes, within: int | None) -> None:
    file = open_path(name, within)
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            opened = _open_anyway(file)
            try:
                os.ftruncate(opened, 0)
            finally:
                os.close(opened)
    finally:
        os.close(file)


def _open_anyway(file: int) -> int:
    """Opens a file for writing, even if its mode denies that to its owner. O_NONBLOCK: never waits for a lease to be broken."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(f"/proc/self/fd/{file}", flags)
    except PermissionError:
        set_mode(file, _OPEN_TO_OWNER)
        return os.open(f"/proc/self/fd/{file}", flags)


def clear_directory(
    top: int,
    enough: Callable[[], bool] = lambda: False,
    remove: Callable[[str, int], None] = remove_file,
) -> bool:
    """Removes everything in an open directory. False if `enough` returned true first: then call it again.

    No link is followed. Directories that lie too deep are moved up to the top and removed later, so that depth costs neither stack nor open
    files. `enough` is only asked after a removal, so that each call makes progress. Another process may remove the same tree at the same time.
    """
    while _clear_below(top, top, 0, enough, remove):
        with os.scandir(top) as entries:  # a scan may miss entries that are added or removed meanwhile
            if next(entries, None) is None:
                return True
    return False


def _clear_below(
    directory: int, top: int, depth: int, enough: Callable[[], bool], remove: Callable[[str, int], None]
) -> bool:
    with os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if not entry.is_dir(follow_symlinks=False):
                    remove(entry.name, directory)
                elif not _clear_child(entry.name, directory, top, depth, enough, remove):
                    return False
            if enough():
                return False
    return True


def _clear_child(
    name: str, parent: int, top: int, depth: int, enough: Callable[[], bool], remove: Callable[[str, int], None]
) -> bool:
    child = open_directory_anyway(name, parent)
    try:
        if os.fstat(child).st_mode & _OPEN_TO_OWNER != _OPEN_TO_OWNER:
            os.fchmod(child, _OPEN_TO_OWNER)  # also to move it: its `..` changes
        if depth == _MOST_LEVELS:
            os.rename(name, os.urandom(8).hex(), src_dir_fd=parent, dst_dir_fd=top)
            return True
        if not _clear_below(child, top, depth + 1, enough, remove):
            return False
    finally:
        os.close(child)
    remove_if_empty(name, parent)
    return True


def remove_if_empty(name: str | os.PathLike[str], within: int | None = None) -> bool:
    """False if something is in the directory."""
    try:
        os.rmdir(name, dir_fd=within)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


DEEPEST = 200
TOO_DEEP = 1 << 62
"""A tree deeper than this counts as more than any limit, so that nothing can be hidden in it."""
MOST_LINKED = 1_000_000
"""Hard-linked files that are remembered; beyond that, each name counts."""
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 512
_EXHAUSTED = (
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
)  # a directory that cannot be opened for these reasons must not count as empty

_SeenFiles = set[tuple[int, int]]


def disk_usage(directories: Sequence[str], deepest: int = DEEPEST) -> list[tuple[int, int]]:
    """Bytes and inodes below each directory. Allocated blocks count, so a sparse file counts what it takes on disk. What is removed meanwhile
    is not counted; a hard-linked file counts once, in the first directory that has it."""
    seen: _SeenFiles = set()
    return [_below(directory, seen, deepest) for directory in directories]


def _below(path: str, seen: _SeenFiles, deepest: int) -> tuple[int, int]:
    try:
        top = os.open(path, DIRECTORY)
    except OSError:
        return 0, 0
    total, inodes = os.fstat(top).st_blocks * _BLOCK, 1
    stack = [(top, _listed(top))]
    try:
        while stack:
            directory, names = stack[-1]
            name = next(names, None)
            if name is None:
                os.close(directory)
                stack.pop()
                continue
            try:
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(found.st_mode):
                if len(stack) > deepest:
                    return TOO_DEEP, inodes
                inner = _entered(name, directory)
                if inner is not None:
                    stack.append((inner, _listed(inner)))
            elif found.st_nlink > 1 and _known(found, seen):
                continue
            total += found.st_blocks * _BLOCK
            inodes += 1
    except OSError as error:
        if error.errno not in _EXHAUSTED:
            raise
        return TOO_DEEP, inodes
    finally:
        for directory, names in stack:
            names.close()
            os.close(directory)
    return total, inodes


def _known(found: os.stat_result, seen: _SeenFiles) -> bool:
    """Whether the file was already counted under another name."""
    key = (found.st_dev, found.st_ino)
    if key in seen:
        return True
    if len(seen) < MOST_LINKED:
        seen.add(key)
    return False


def _entered(name: str, directory: int) -> int | None:
    try:
        return os.open(name, DIRECTORY, dir_fd=directory)
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise
        return None  # removed or replaced meanwhile


def _listed(directory: int) -> Generator[str, None, None]:
    """Yields names one by one: a directory may have more than fits into memory."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                yield entry.name
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise  # else it was removed meanwhile
