"""The reserve as a file: blocks that nobody else can take, and that are given back when the API needs them. All of it blocks."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from sandpool.base.preallocation import allocate


class Ballast:
    """`path` is a file of ours. What an earlier process held is held still."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size

    @property
    def held(self) -> int:
        try:
            return min(self._size, self._path.stat().st_blocks * 512)
        except OSError:
            return 0

    @property
    def missing(self) -> int:
        return self._size - self.held

    def hold(self) -> bool:
        """Takes what is missing, or leaves it as it is. Whether all of it is held."""
        if self._size <= 0:
            self.release()
            return True
        held = self.held
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        try:
            if os.fstat(file).st_size > self._size:
                os.ftruncate(file, self._size)
            allocate(file, 0, self._size, beyond_end=False)
        except OSError:  # no room, or a file system that cannot: then the thresholds alone keep it free
            with contextlib.suppress(OSError):
                os.ftruncate(file, held)
            return False
        finally:
            os.close(file)
        return True

    def release(self, size: int | None = None) -> None:
        """Gives so much of it back, or all of it."""
        left = 0 if size is None else max(0, self.held - size)
        with contextlib.suppress(OSError):
            if left:
                os.truncate(self._path, left)
            else:
                self._path.unlink()
