"""Changes to files: written whole or not at all, moved, removed."""

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
"""Writes all of the content to an open file."""


def poured(pieces: AsyncIterator[bytes]) -> Fill:
    async def fill(file: int) -> None:
        async for piece in pieces:
            _write_all(file, piece)

    return fill


async def put(root: Root, path: str, fill: Fill, mode: int | None = None) -> None:
    """Readers see the old file or the new one. Without a mode, an old file's stays. It is not flushed to the disk: that takes
    longer than everything else, and a sandbox's files need not survive the loss of its machine."""
    with root.place(path, parents=True) as place, refusals(path):
        if place.is_root or _is_folder(place):
            raise Refused(Code.INVALID, f"{path!r} is a folder")
        temporary = Place(place.folder, f"{TEMPORARY}{secrets.token_hex(8)}")
        fd = open_at(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                await fill(fd)
                os.fchmod(fd, mode if mode is not None else _mode_now(place))
            finally:
                os.close(fd)
            os.rename(temporary.name, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary.name, dir_fd=place.folder)
            raise


def make_folder(root: Root, path: str, mode: int | None, *, parents: bool) -> None:
    """One that is there already is fine when parents may be made too."""
    with root.place(path, parents=parents) as place, refusals(path):
        if place.is_root or (parents and _is_folder(place)):
            return
        os.mkdir(place.name, 0o755 if mode is None else mode, dir_fd=place.folder)


def move(root: Root, path: str, target: str) -> None:
    """Into a new name, over an old file. A symlink itself is moved."""
    with root.place(path, follow=False) as old, root.place(target, follow=False, parents=True) as new:
        if old.is_root or new.is_root:
            raise Refused(Code.INVALID, "the root itself cannot be moved or replaced")
        with refusals(path):
            os.stat(old.name, dir_fd=old.folder, follow_symlinks=False)
        with refusals(target):
            os.rename(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder)


async def remove(root: Root, path: str, *, recursive: bool, follow: bool = False) -> None:
    """A symlink itself is removed, not what it leads to, unless `follow`."""
    with root.place(path, follow=follow) as place, refusals(path):
        if place.is_root:
            await _empty(place, path, recursive=recursive)
        elif not _is_folder(place):
            os.unlink(place.name, dir_fd=place.folder)
        elif recursive:
            await asyncio.to_thread(shutil.rmtree, place.name, dir_fd=place.folder)
        else:
            os.rmdir(place.name, dir_fd=place.folder)


async def _empty(place: Place, path: str, *, recursive: bool) -> None:
    if not recursive:
        raise Refused(Code.CONFLICT, f"{path!r} is the root; with recursive=true its contents are removed")
    fd = open_at(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in os.listdir(fd):
            if _is_folder(Place(fd, name)):
                await asyncio.to_thread(shutil.rmtree, name, dir_fd=fd)
            else:
                os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)


def _is_folder(place: Place) -> bool:
    try:
        return stat.S_ISDIR(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _mode_now(place: Place) -> int:
    try:
        return stat.S_IMODE(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode) & 0o777
    except FileNotFoundError:
        return DEFAULT_MODE


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
