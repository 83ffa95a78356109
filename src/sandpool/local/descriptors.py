"""Files that others may exchange at any moment, held by a descriptor: what is changed is what was opened, never what a name
leads to by then.

`os.chmod` with a name and an open folder follows a link that took the name's place; nothing here does. Standard library only:
workers that ship nothing else use it, too. All of it blocks. Errors are OSError.
"""

from __future__ import annotations

import ctypes
import os

PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_EMPTY_PATH = 0x1000
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
