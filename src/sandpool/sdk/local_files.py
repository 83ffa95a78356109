"""Local files of uploads and downloads: report progress while they are read, and are replaced atomically when written."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

LocalPath = str | os.PathLike[str]
Progress = Callable[[int, int], object]
"""Called with the bytes done so far and the total (0 if it is not known)."""

TAKEN = 0o755
"""Permissions that a downloaded file may have: other users of this machine never get write access."""


def is_directory(path: LocalPath) -> bool:
    return os.path.isdir(path)


def opened(path: LocalPath) -> BinaryIO:
    return open(path, "rb", buffering=0)


class _Measured(io.RawIOBase):
    """A file that reports how far it was read."""

    def __init__(self, file: BinaryIO, size: int, progress: Progress) -> None:
        self._file = file
        self._size = size
        self._progress = progress

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        if data:
            self._progress(self._file.tell(), self._size)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def measured(file: BinaryIO, size: int, progress: Progress) -> BinaryIO:
    return _Measured(file, size, progress)  # type: ignore[return-value]


@contextmanager
def putting(path: LocalPath, mode: int) -> Iterator[BinaryIO]:
    """A temporary file that is renamed over the old one when it is complete."""
    text = os.fspath(path)
    directory = os.path.dirname(text) or "."
    os.makedirs(directory, exist_ok=True)
    temporary = os.path.join(directory, f".sandpool-{secrets.token_hex(8)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb", buffering=0) as file:
            yield file
            os.fchmod(fd, mode & TAKEN)
        os.replace(temporary, text)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
