"""File operations that survive a power loss, and files that only their owner may read."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(path: Path) -> None:
    """Makes creations, renames and removals in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename_durably(source: Path, target: Path) -> None:
    sync_file(source)
    os.rename(source, target)
    sync_directory(target.parent)


def create_private(path: Path) -> None:
    """Creates an empty file that only its owner may read. SQLite gives its side files the same mode."""
    remove(path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def remove(path: Path) -> None:
    """Removes a file if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def side_files(store: Path) -> tuple[Path, ...]:
    """The files that SQLite keeps beside a database while it is open, and leaves behind after a crash. The write-ahead log comes first."""
    return tuple(store.with_name(store.name + suffix) for suffix in ("-wal", "-shm", "-journal"))
