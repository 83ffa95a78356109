"""Files that others may exchange at any moment, held by a descriptor: what is changed is what was opened, never what a name
leads to by then.

`os.chmod` with a name and an open folder follows a link that took the name's place; nothing here does. Standard library only:
workers that ship nothing else use it, too. All of it blocks. Errors are OSError.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat

PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_FDCWD, _AT_EMPTY_PATH, _AT_SYMLINK_FOLLOW = -100, 0x1000, 0x400
_OPEN_TO_OWNER = 0o700

_libc = ctypes.CDLL(None, use_errno=True)


def held(name: str | bytes, within: int | None = None, more: int = 0) -> int:
    """A descriptor of what has this name now, be it a link; it gives no access but to the thing itself."""
    return os.open(name, PATH_ONLY | more, dir_fd=within)


def set_mode(file: int, mode: int) -> None:
    """Also of a file that is only held. A link has no mode: that is an error, and nothing is followed."""
    os.chmod(f"/proc/self/fd/{file}", mode)


def set_owner(file: int, uid: int, gid: int) -> None:
    """Also of a file that is only held, and of a link itself."""
    if _libc.fchownat(file, b"", ctypes.c_uint(uid), ctypes.c_uint(gid), _AT_EMPTY_PATH) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "fchownat")


def give_name(file: int, name: str, within: int) -> None:
    """Another name for a file that is only held. FileExistsError if something has that name."""
    source = os.fsencode(f"/proc/self/fd/{file}")
    if _libc.linkat(_AT_FDCWD, source, within, os.fsencode(name), _AT_SYMLINK_FOLLOW) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "linkat")


def open_folder_anyway(name: str | bytes, within: int) -> int:
    """A folder to be read and emptied, even if its mode keeps its owner out. NotADirectoryError if it is a link."""
    try:
        return os.open(name, FOLDER, dir_fd=within)
    except PermissionError:
        folder = held(name, within, os.O_DIRECTORY)
    try:
        set_mode(folder, _OPEN_TO_OWNER)
        return os.open(".", FOLDER, dir_fd=folder)
    finally:
        os.close(folder)


def discard(name: str | bytes, within: int | None = None) -> None:
    """Removes a file that is no folder. One that loses its last name is emptied before: it may be held by somebody whom nobody asks
    for it, by mounts of a container that has ended or by what an overlay remembers, and would stay on the disk."""
    found = os.stat(name, dir_fd=within, follow_symlinks=False)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_blocks:
        with contextlib.suppress(
            OSError
        ):  # a program that runs, or a file that somebody has a lease on: both can be seen
            _clear(name, within)
    os.unlink(name, dir_fd=within)


def _clear(name: str | bytes, within: int | None) -> None:
    file = held(name, within)
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
    """To be written, even if its mode keeps its owner out. Waits for nobody who has a lease on it."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(f"/proc/self/fd/{file}", flags)
    except PermissionError:
        set_mode(file, _OPEN_TO_OWNER)
        return os.open(f"/proc/self/fd/{file}", flags)
