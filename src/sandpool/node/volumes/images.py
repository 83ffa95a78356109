"""A file system of a fixed size in a file: how root makes the machine hold a volume's size.

Mounted by a loop device that goes away with the mount. All of it blocks; it runs in threads. Errors are OSError.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

from sandpool.node.openat import FOLDER

_SMALLEST = 2 * 1024 * 1024
_SECONDS = 60
_BLOCK = 512
_SHUT_DOWN, _AT_ONCE = 0x8004587D, 2  # FS_IOC_SHUTDOWN, and that nothing more is written
_LARGE, _JOURNAL = 1 << 30, 32  # bytes, MiB: by itself a large one takes 1 GiB, before anything is in it


def possible() -> bool:
    return os.geteuid() == 0 and Path("/dev/loop-control").exists() and None not in map(_tool, ("mkfs.ext4", "mount"))


def mounted(folder: Path) -> bool:
    return os.path.ismount(folder)


def attach(image: Path, folder: Path, size: int) -> None:
    """Makes the image if it is not there, and mounts it. A new one appears under its name only when it is whole. What is deleted
    in it is given back to the disk: who writes and deletes all over it would else take its whole size."""
    if not image.exists():
        _make(image, size)
    folder.mkdir(mode=0o700, exist_ok=True)
    if not mounted(folder):
        _run("mount", "-t", "ext4", "-o", "loop,nosuid,nodev,discard", str(image), str(folder))


def detach(folder: Path) -> None:
    if mounted(folder):
        _run("umount", "--", str(folder))


def shut_down(folder: Path) -> None:
    """Ends a file system that is to be removed for everybody. A pod may have given an open file of it to another: without this, that
    one would write on to a disk that nobody finds any more, and the kernel would read what is taken away below it."""
    if mounted(folder):
        file = os.open(folder, FOLDER)
        try:
            fcntl.ioctl(file, _SHUT_DOWN, struct.pack("I", _AT_ONCE))
        finally:
            os.close(file)


def taken(image: Path, folder: Path) -> int:
    """Bytes of the disk that it takes, whatever has a name in it: files that are open and deleted, and what was deleted but not yet
    given back. Never more than its size."""
    file, inside = os.stat(image), os.statvfs(folder)
    written = file.st_blocks * _BLOCK
    used = (inside.f_blocks - inside.f_bfree) * inside.f_frsize  # not yet written back, too
    return min(max(written, used), file.st_size)


def _make(image: Path, size: int) -> None:
    fresh = image.with_name(image.name + ".new")
    with open(fresh, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.truncate(max(size, _SMALLEST))
    journal = ("-J", f"size={_JOURNAL}") if size >= _LARGE else ()
    _run("mkfs.ext4", "-q", "-F", "-m", "0", *journal, "-E", "nodiscard,lazy_itable_init=1", str(fresh))
    os.rename(fresh, image)


def _tool(name: str) -> str | None:
    return shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")


def _run(name: str, *arguments: str) -> None:
    tool = _tool(name)
    if tool is None:
        raise FileNotFoundError(f"{name} is not installed")
    done = subprocess.run(  # noqa: S603 - a fixed program; paths are our own
        [tool, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode != 0:
        raise OSError(f"{name}: {done.stderr.strip()[:300]}")
