"""Watches a directory for changes (inotify, through ctypes)."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from collections.abc import AsyncGenerator
from typing import Any

from sandpool.boxd.files.root import Root
from sandpool.wire.codes import Code, Refused

MOST_DIRECTORIES = 1024

_CREATE, _DELETE, _MODIFY, _ATTRIB = 0x100, 0x200, 0x2, 0x4
_MOVED_FROM, _MOVED_TO, _CLOSE_WRITE = 0x40, 0x80, 0x8
_OVERFLOW, _IGNORED, _ISDIR = 0x4000, 0x8000, 0x40000000
_WANTED = _CREATE | _DELETE | _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CLOSE_WRITE
_NAMES = {
    _CREATE: "created", _DELETE: "removed", _MODIFY: "modified", _ATTRIB: "attributes", _MOVED_FROM: "moved-from",
    _MOVED_TO: "moved-to", _CLOSE_WRITE: "written",
}  # fmt: skip
_EVENT = struct.Struct("iIII")


class Watch:
    """The watched directories. With `recursive`, new directories are watched, too."""

    def __init__(self, root: Root, path: str, *, recursive: bool) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._root = root
        self._recursive = recursive
        self._directories: dict[int, str] = {}  # by watch descriptor, relative to the watched path
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise Refused(Code.UNAVAILABLE, f"files cannot be watched here: {os.strerror(ctypes.get_errno())}")
        self._top = path
        try:
            with root.opened(path, os.O_RDONLY | os.O_DIRECTORY) as directory:
                self._add(directory, "")
        except BaseException:
            os.close(self._fd)
            raise

    def _add(self, directory: int, name: str) -> None:
        if len(self._directories) >= MOST_DIRECTORIES:
            raise Refused(
                Code.EXHAUSTED, f"more than {MOST_DIRECTORIES} directories below {self._top!r}; watch a smaller part"
            )
        watch = self._libc.inotify_add_watch(self._fd, f"/proc/self/fd/{directory}".encode(), _WANTED)
        if watch < 0:
            raise Refused(Code.UNAVAILABLE, f"{name or self._top!r}: {os.strerror(ctypes.get_errno())}")
        self._directories[watch] = name
        if self._recursive:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        self._add_below(directory, entry.name, f"{name}/{entry.name}".lstrip("/"))

    def _add_below(self, directory: int, name: str, path: str) -> None:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        except OSError:  # already removed again
            return
        try:
            self._add(fd, path)
        finally:
            os.close(fd)

    async def changes(self) -> AsyncGenerator[dict[str, Any], None]:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._fd, ready.set)
        try:
            while True:
                await ready.wait()
                ready.clear()
                for change in self._read():
                    yield change
        finally:
            loop.remove_reader(self._fd)
            os.close(self._fd)

    def _read(self) -> list[dict[str, Any]]:
        try:
            data = os.read(self._fd, 64 * 1024)
        except BlockingIOError:
            return []
        found: list[dict[str, Any]] = []
        at = 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0").decode("utf-8", "surrogateescape")
            at += _EVENT.size + length
            if mask & _OVERFLOW:
                found.append({"change": "overflow", "path": ""})
            elif mask & _IGNORED:
                self._directories.pop(watch, None)
            elif watch in self._directories:
                found.append(self._event(f"{self._directories[watch]}/{name}".strip("/"), mask))
        return found

    def _event(self, path: str, mask: int) -> dict[str, Any]:
        directory = bool(mask & _ISDIR)
        if directory and self._recursive and mask & (_CREATE | _MOVED_TO):
            self._follow(path)
        change = next((word for bit, word in _NAMES.items() if mask & bit), "changed")
        return {"change": change, "path": path, "type": "directory" if directory else "file"}

    def _follow(self, path: str) -> None:
        try:
            with self._root.opened(f"{self._top.rstrip('/')}/{path}", os.O_RDONLY | os.O_DIRECTORY) as directory:
                self._add(directory, path)
        except Refused:  # already removed again, or too many
            pass
