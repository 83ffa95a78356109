"""A file system of a fixed size in a file, mounted through a loop device. This is how root enforces a volume's size.

The loop device goes away with the mount. All functions block; call them in threads. Errors are OSError.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path

from sandpool.node.openat import DIRECTORY

_SMALLEST = 2 * 1024 * 1024
_SECONDS = 60
_BLOCK = 512
_SHUT_DOWN, _AT_ONCE = 0x8004587D, 2  # FS_IOC_SHUTDOWN, and the flag not to write anything more
_LARGE, _JOURNAL = (
    1 << 30,
    32,
)  # from this many bytes on, this many MiB: mkfs would give a large image a journal of 1 GiB


def supported() -> bool:
    return os.geteuid() == 0 and Path("/dev/loop-control").exists() and None not in map(_tool, ("mkfs.ext4", "mount"))


def mounted(directory: Path) -> bool:
    return os.path.ismount(directory)


def attach(image: Path, directory: Path, size: int) -> None:
    """Creates the image if it is missing, and mounts it. A new image gets its name only when it is complete. With `discard`, blocks of deleted
    files are returned to the disk; without it, writing and deleting would in time occupy the whole size."""
    if not image.exists():
        _make(image, size)
    directory.mkdir(mode=0o700, exist_ok=True)
    if not mounted(directory):
        _run("mount", "-t", "ext4", "-o", "loop,nosuid,nodev,discard", str(image), str(directory))


def detach(directory: Path) -> None:
    if mounted(directory):
        _run("umount", "--", str(directory))


def shut_down(directory: Path) -> None:
    """Shuts down a file system before it is removed. A pod may have passed an open file of it to another pod, which could otherwise keep
    writing to an image that nothing measures, while the kernel still reads an image that is being removed."""
    if mounted(directory):
        file = os.open(directory, DIRECTORY)
        try:
            fcntl.ioctl(file, _SHUT_DOWN, struct.pack("I", _AT_ONCE))
        finally:
            os.close(file)


def disk_usage(image: Path, directory: Path) -> int:
    """Disk bytes that the image occupies. Includes files that are deleted but still open, and deleted blocks that are not yet returned. Never
    more than its size."""
    file, inside = os.stat(image), os.statvfs(directory)
    written = file.st_blocks * _BLOCK
    used = (inside.f_blocks - inside.f_bfree) * inside.f_frsize  # includes data not yet written back
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
