"""Reserves disk space in advance, so that later writes to it cannot fail for lack of space."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

_KEEP_SIZE = 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)


def allocate(file: int, start: int, size: int, *, beyond_end: bool) -> None:
    """Allocates the blocks of a range of a file; with `beyond_end`, without changing the file's size. Unlike os.posix_fallocate it never falls
    back to writing zeros: it raises OSError if the file system does not support it or is full."""
    if _libc.fallocate(file, _KEEP_SIZE if beyond_end else 0, start, size) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class HeldRoom:
    """Keeps `size` spare bytes allocated for a database and for its write-ahead log, so that commits still succeed when the disk is full.

    The files stay open until `close`, which must come after every connection is closed: closing a file releases all locks that this
    process has on it, including SQLite's."""

    def __init__(self, path: Path, size: int) -> None:
        self._size = size
        self._files: list[tuple[int, bool]] = []
        for name, grows in ((path, True), (path.with_name(f"{path.name}-wal"), False)):
            if size > 0:
                with contextlib.suppress(OSError):
                    self._files.append((os.open(name, os.O_RDWR | os.O_CLOEXEC), grows))
        self.top_up()

    def top_up(self) -> None:
        """Allocates the spare bytes again. A failure is retried at the next checkpoint; blocks that are already allocated cost nothing. The log is
        rewritten from its start, the database grows at its end."""
        for file, grows in self._files:
            with contextlib.suppress(OSError):
                allocate(file, os.fstat(file).st_size if grows else 0, self._size, beyond_end=True)

    @property
    def any(self) -> bool:
        """Whether any space is reserved."""
        return bool(self._files)

    def close(self) -> None:
        for file, _ in self._files:
            os.close(file)
        self._files.clear()
