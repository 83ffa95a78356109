"""Writes files atomically, creates directories, moves and removes."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from sandpool.boxd.files.root import Place, Root, open_at, refusals
from sandpool.wire.codes import Code, Refused

_MODE = re.compile(r"0?[0-7]{3}")
DEFAULT_MODE = 0o644
TEMPORARY = ".boxd-"


def mode_of(text: str) -> int | None:
    if not text:
        return None
    if not _MODE.fullmatch(text):
        raise Refused(Code.INVALID, f"mode is {text!r}; use three octal digits such as 0644")
    return int(text, 8)


Fill = Callable[[int], Awaitable[None]]
"""Writes the whole content to an open file."""


def poured(pieces: AsyncIterator[bytes]) -> Fill:
    async def fill(file: int) -> None:
        async for piece in pieces:
            _write_all(file, piece)

    return fill


async def put(root: Root, path: str, fill: Fill, mode: int | None = None) -> None:
    """Replaces a file atomically: readers see the old file or the new one. Without `mode`, the old file's mode stays. No fsync: it takes
    longer than everything else, and a sandbox's files need not survive the loss of its machine."""
    with root.place(path, parents=True) as place, refusals(path):
        if place.is_root or _is_directory(place):
            raise Refused(Code.INVALID, f"{path!r} is a directory")
        temporary = Place(place.directory, f"{TEMPORARY}{secrets.token_hex(8)}")
        fd = open_at(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                await fill(fd)
                os.fchmod(fd, mode if mode is not None else _mode_now(place))
            finally:
                os.close(fd)
            os.rename(temporary.name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary.name, dir_fd=place.directory)
            raise


def make_directory(root: Root, path: str, mode: int | None, *, parents: bool) -> None:
    """Creates a directory. With `parents`, an existing one is no error, as with `mkdir -p`."""
    with root.place(path, parents=parents) as place, refusals(path):
        if place.is_root or (parents and _is_directory(place)):
            return
        os.mkdir(place.name, 0o755 if mode is None else mode, dir_fd=place.directory)


def move(root: Root, path: str, target: str) -> None:
    """Renames, replacing an existing file. A symlink itself is moved."""
    with root.place(path, follow=False) as old, root.place(target, follow=False, parents=True) as new:
        if old.is_root or new.is_root:
            raise Refused(Code.INVALID, "the root itself cannot be moved or replaced")
        with refusals(path):
            os.stat(old.name, dir_fd=old.directory, follow_symlinks=False)
        with refusals(target):
            os.rename(old.name, new.name, src_dir_fd=old.directory, dst_dir_fd=new.directory)


async def remove(root: Root, path: str, *, recursive: bool, follow: bool = False) -> None:
    """Removes a file or directory. Of a symlink, the link itself, unless `follow`."""
    with root.place(path, follow=follow) as place, refusals(path):
        if place.is_root:
            await _empty(place, path, recursive=recursive)
        elif not _is_directory(place):
            os.unlink(place.name, dir_fd=place.directory)
        elif recursive:
            await asyncio.to_thread(shutil.rmtree, place.name, dir_fd=place.directory)
        else:
            os.rmdir(place.name, dir_fd=place.directory)


async def _empty(place: Place, path: str, *, recursive: bool) -> None:
    if not recursive:
        raise Refused(Code.CONFLICT, f"{path!r} is the root and cannot be removed; recursive=true removes its contents")
    fd = open_at(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in os.listdir(fd):
            if _is_directory(Place(fd, name)):
                await asyncio.to_thread(shutil.rmtree, name, dir_fd=fd)
            else:
                os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)


def _is_directory(place: Place) -> bool:
    try:
        return stat.S_ISDIR(os.stat(place.name, dir_fd=place.directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _mode_now(place: Place) -> int:
    try:
        return stat.S_IMODE(os.stat(place.name, dir_fd=place.directory, follow_symlinks=False).st_mode) & 0o777
    except FileNotFoundError:
        return DEFAULT_MODE


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
