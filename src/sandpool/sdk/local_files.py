"""The local end of uploads and downloads."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

LocalPath = str | os.PathLike[str]
Progress = Callable[[int, int], object]
"""Called with the bytes done so far and the total (0 where it is not known)."""

STEP = 1 << 20
TAKEN = 0o755
"""Of the permissions that a sandbox gives a file: never the right of other users of this machine to change it."""


def is_folder(path: LocalPath) -> bool:
    return os.path.isdir(path)


def opened(path: LocalPath) -> BinaryIO:
    return open(path, "rb", buffering=0)


class _Measured(io.RawIOBase):
    """A file that tells how far it was read."""

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
    """A new file that takes its name when it is complete, over an old one."""
    text = os.fspath(path)
    folder = os.path.dirname(text) or "."
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".sandpool-{secrets.token_hex(8)}")
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
