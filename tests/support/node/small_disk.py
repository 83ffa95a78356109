"""A small file system of its own, for tests that fill a disk: ext4 in a sparse file, mounted by a loop device."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

MIB = 1 << 20


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Skips where this root may not mount."""
    image, place = folder / "disk.ext4", folder / "disk"
    with open(image, "wb") as file:
        file.truncate(size)
    place.mkdir()
    made = subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], capture_output=True, check=False)
    if made.returncode == 0:
        made = subprocess.run(["mount", "-o", "loop", str(image), str(place)], capture_output=True, check=False)
    if made.returncode != 0:
        image.unlink()
        pytest.skip(f"no small file system can be made here: {made.stderr.decode().strip()[:200]}")
    try:
        yield place
    finally:
        _unmounted(place)
        image.unlink()


def _unmounted(place: Path) -> None:
    """A process that has just ended may hold it for a moment."""
    end = time.monotonic() + 20
    while subprocess.run(["umount", "--", str(place)], capture_output=True, check=False).returncode != 0:
        assert time.monotonic() < end, f"{place} is still in use"
        time.sleep(0.05)


def fill(path: Path, leave: int) -> None:
    """A file that takes all but so many bytes of its file system; 0 is really the last block."""
    found = os.statvfs(path.parent)
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        with contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(1, found.f_bavail * found.f_frsize - leave))
        file.seek(0, os.SEEK_END)
        while not leave:
            file.write(bytes(4096))
            os.fsync(file.fileno())
