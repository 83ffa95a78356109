"""Room on the disk that is taken before it is needed: what is written there later cannot fail for lack of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

_KEEP_SIZE = 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)


def allocate(file: int, start: int, size: int, *, beyond_end: bool) -> None:
    """Takes the blocks of a part of a file; `beyond_end`: without making it longer. Unlike os.posix_fallocate it never
    writes zeros instead where a file system cannot: then, and where there is no room, it raises OSError."""
    if _libc.fallocate(file, _KEEP_SIZE if beyond_end else 0, start, size) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class HeldRoom:
    """Lets a database and its write-ahead log hold so many bytes beyond what they need, so that commits go on when the disk is full.

    The files stay open until `close`, which comes after every connection is closed: closing a file ends all locks that this process
    has on it, those of SQLite included."""

    def __init__(self, path: Path, size: int) -> None:
        self._size = size
        self._files: list[tuple[int, bool]] = []
        for name, grows in ((path, True), (path.with_name(f"{path.name}-wal"), False)):
            if size > 0:
                with contextlib.suppress(OSError):
                    self._files.append((os.open(name, os.O_RDWR | os.O_CLOEXEC), grows))
        self.top_up()

    def top_up(self) -> None:
        """What cannot be had now is tried again at the next checkpoint; blocks that are held already cost nothing. The log begins
        anew again and again, the database grows."""
        for file, grows in self._files:
            with contextlib.suppress(OSError):
                allocate(file, os.fstat(file).st_size if grows else 0, self._size, beyond_end=True)

    @property
    def any(self) -> bool:
        """Whether any is to be held."""
        return bool(self._files)

    def close(self) -> None:
        for file, _ in self._files:
            os.close(file)
        self._files.clear()
