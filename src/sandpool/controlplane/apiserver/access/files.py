"""Files that are whole or not there, and secrets that only their owner reads."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes, mode: int) -> None:
    """Writes beside the file, makes it durable, then renames it over the old one."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(fd, mode)  # whatever the umask says
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(content)
            file.flush()
            os.fsync(fd)
    finally:
        os.close(fd)
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_secret(path: Path, content: bytes) -> None:
    write_atomically(path, content, 0o600)


def read_secret(path: Path) -> bytes | None:
    """The content, or None if there is no such file. Takes away what others may do with it."""
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        return path.read_bytes()
    except FileNotFoundError:
        return None
