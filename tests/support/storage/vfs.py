"""Records what SQLite does to files, by standing between it and its own way of doing so.

A copy of the default VFS is registered in the very libsqlite3 that the standard library uses; in it, and in the methods
of every file that it opens, the few functions that change the disk are replaced by ones that note the change and go on.
Locks and shared memory pass straight through. What our own code does with `os` is noted by a stand-in for that module.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.storage.disk import Event, Kind

_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
_OPEN = ctypes.CFUNCTYPE(_I, _P, _P, _P, _I, _P)
_DELETE = ctypes.CFUNCTYPE(_I, _P, _P, _I)
_CLOSE = ctypes.CFUNCTYPE(_I, _P)
_WRITE = ctypes.CFUNCTYPE(_I, _P, _P, _I, _L)
_TRUNCATE = ctypes.CFUNCTYPE(_I, _P, _L)
_SYNC = ctypes.CFUNCTYPE(_I, _P, _I)


class _Vfs(ctypes.Structure):
    _fields_ = [
        ("version", _I),
        ("file_size", _I),
        ("longest_path", _I),
        ("next", _P),
        ("name", ctypes.c_char_p),
        ("data", _P),
        ("open", _P),
        ("delete", _P),
        ("rest", _P * 13),
    ]


class _Methods(ctypes.Structure):
    _fields_ = [
        ("version", _I),
        ("close", _P),
        ("read", _P),
        ("write", _P),
        ("truncate", _P),
        ("sync", _P),
        ("rest", _P * 13),
    ]


class Recorder:
    """The timeline of one directory: changes of files, of names, and whatever the test adds with `note`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: list[Event] = []
        self.names: dict[str, int] = {}  # which inode a name leads to now
        self._noting = threading.Lock()
        self._inodes = 0
        self._files: dict[int, int] = {}  # SQLite's open files, by address
        self._kept: list[Any] = []  # callbacks must outlive their use
        self._methods: dict[int, _Methods] = {}

    def note(self, kind: Kind, **facts: Any) -> Event:
        with self._noting:  # the writer, the checkpoints and the marker have a thread each
            event = Event(kind, len(self.events), **facts)
            self.events.append(event)
        return event

    def during(self, event: Event, act: Callable[[], Any]) -> Any:
        """Does it, and notes when it had ended: a write that overlaps a sync is not covered by it."""
        result = act()
        event.ended = len(self.events)
        return result

    def syncing(self, act: Callable[[], Any], **facts: Any) -> Any:
        """A sync covers what had ended before it began, and counts from when it has ended."""
        began = len(self.events)
        result = act()
        self.note(Kind.SYNC, covers=began, **facts)
        return result

    def opened(self, name: str) -> int:
        if name not in self.names:
            self._inodes += 1
            self.names[name] = self._inodes
            self.note(Kind.CREATE, name=name, inode=self._inodes)
        return self.names[name]

    def removed(self, name: str) -> None:
        if self.names.pop(name, None) is not None:
            self.note(Kind.REMOVE, name=name)

    def renamed(self, name: str, target: str) -> None:
        self.names[target] = self.names.pop(name)
        self.note(Kind.RENAME, name=name, target=target)

    def ours(self, path: Any) -> str | None:
        path = Path(os.fsdecode(path))
        return path.name if path.parent == self.directory and not path.name.endswith("-shm") else None

    # The shim around SQLite's VFS.

    def vfs(self, original: _Vfs) -> _Vfs:
        really_open, really_delete = _OPEN(original.open), _DELETE(original.delete)

        def on_open(vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
            code = int(really_open(vfs, name, file, flags, out))
            ours = self.ours(ctypes.string_at(name)) if name else None
            if code == 0 and ours is not None:
                self._files[file] = self.opened(ours)
                self._wrap(file)
            return code

        def on_delete(vfs: int, name: int, sync: int) -> int:
            ours = self.ours(ctypes.string_at(name))
            if ours is not None:
                self.removed(ours)
            began = len(self.events)
            code = int(really_delete(vfs, name, sync))
            if ours is not None and sync and code == 0:
                self.note(Kind.SYNC, covers=began)
            return code

        shim = _Vfs.from_buffer_copy(original)
        shim.name = b"recording"
        shim.next = None
        shim.open, shim.delete = self._keep(_OPEN(on_open)), self._keep(_DELETE(on_delete))
        return shim

    def _keep(self, function: Any) -> int | None:
        self._kept.append(function)
        return ctypes.cast(function, _P).value

    def _wrap(self, file: int) -> None:
        """Gives an open file our methods instead of its own; the file itself stays SQLite's."""
        pointer = ctypes.cast(file, ctypes.POINTER(_P))
        address = pointer[0]
        if address not in self._methods:
            self._methods[address] = self._recording(_Methods.from_address(address))
        pointer[0] = ctypes.addressof(self._methods[address])

    def _recording(self, original: _Methods) -> _Methods:
        write, truncate = _WRITE(original.write), _TRUNCATE(original.truncate)
        sync, close = _SYNC(original.sync), _CLOSE(original.close)

        def on_write(file: int, data: int, size: int, offset: int) -> int:
            inode, content = self._files[file], ctypes.string_at(data, size)
            event = self.note(Kind.WRITE, inode=inode, offset=offset, data=content)
            return int(self.during(event, lambda: write(file, data, size, offset)))

        def on_truncate(file: int, size: int) -> int:
            event = self.note(Kind.TRUNCATE, inode=self._files[file], offset=size)
            return int(self.during(event, lambda: truncate(file, size)))

        def on_sync(file: int, flags: int) -> int:
            # SQLite also syncs the directory of a new log here. That is not counted: our own code must have done so.
            return int(self.syncing(lambda: sync(file, flags), inode=self._files[file]))

        def on_close(file: int) -> int:
            self._files.pop(file, None)
            return int(close(file))

        copy = _Methods.from_buffer_copy(original)
        copy.write, copy.truncate = self._keep(_WRITE(on_write)), self._keep(_TRUNCATE(on_truncate))
        copy.sync, copy.close = self._keep(_SYNC(on_sync)), self._keep(_CLOSE(on_close))
        return copy


class RecordingOs:
    """The `os` module for one directory's sake: all of it, and changes to names are noted."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._descriptors: dict[int, int | None] = {}  # which inode each leads to; None: the directory

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        descriptor = os.open(path, flags, mode)
        if Path(path) == self._recorder.directory:
            self._descriptors[descriptor] = None
        elif (name := self._recorder.ours(path)) is not None:
            self._descriptors[descriptor] = self._recorder.opened(name)
        return descriptor

    def close(self, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)
        os.close(descriptor)

    def fsync(self, descriptor: int) -> None:
        if descriptor in self._descriptors:
            self._recorder.syncing(lambda: os.fsync(descriptor), inode=self._descriptors[descriptor])

    def fdatasync(self, descriptor: int) -> None:
        self._recorder.syncing(lambda: os.fdatasync(descriptor), inode=self._descriptors[descriptor])

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        event = self._recorder.note(Kind.WRITE, inode=self._descriptors[descriptor], offset=offset, data=data)
        return int(self._recorder.during(event, lambda: os.pwrite(descriptor, data, offset)))

    def unlink(self, path: Any) -> None:
        os.unlink(path)
        if (name := self._recorder.ours(path)) is not None:
            self._recorder.removed(name)

    def rename(self, source: Any, target: Any) -> None:
        os.rename(source, target)
        self._recorder.renamed(Path(source).name, Path(target).name)


def sqlite_library() -> ctypes.CDLL | None:
    """The SQLite that the standard library uses; None where its functions cannot be reached from outside."""
    try:
        library = ctypes.CDLL(_sqlite3.__file__)
        library.sqlite3_vfs_find.restype = _P
        library.sqlite3_vfs_register.argtypes = [_P, _I]
        library.sqlite3_vfs_unregister.argtypes = [_P]
    except (AttributeError, OSError):
        return None
    return library


@contextmanager
def recording(directory: Path) -> Iterator[Recorder]:
    """Records everything that SQLite does to files of the directory. Its connections must be closed inside."""
    library = sqlite_library()
    assert library is not None
    recorder = Recorder(directory)
    original = library.sqlite3_vfs_find(None)
    shim = recorder.vfs(_Vfs.from_address(original))
    assert library.sqlite3_vfs_register(ctypes.byref(shim), 1) == 0
    try:
        yield recorder
    finally:
        assert library.sqlite3_vfs_unregister(ctypes.byref(shim)) == 0
        assert library.sqlite3_vfs_register(original, 1) == 0
