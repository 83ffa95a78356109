"""Writes the files of ConfigMaps, Secrets and the downward API atomically: a reader sees all old files or all new ones.

    ..data -> ..1f3a        a symbolic link that is replaced atomically
    ..1f3a/                 the current files
    name -> ..data/name     one link for each top-level name

Kubernetes uses the same scheme, and programs watch `..data`. All functions block; call them in threads.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator

from sandpool.node.openat import DIRECTORY
from sandpool.node.volumes.directories import checked, make_directory, open_directory, parts
from sandpool.node.volumes.spec import Content

DATA = "..data"
_NEXT = "..data_next"
_READ = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)  # O_NONBLOCK: does not wait for a process that holds a lease on the file
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write(directory: int, volume: str, content: Content, group: int | None) -> None:
    """Brings an open directory up to date. NodeError if a path is invalid; nothing has changed then."""
    checked(volume, content.files)
    if _says(directory, content, group):
        return
    current = f"..{secrets.token_hex(6)}"
    try:
        make_directory(current, directory, 0o755)
        with open_directory(current, directory) as fresh:
            for path, data in content.files.items():
                _write_file(fresh, parts(volume, path), data, _mode(content, path, group), group)
    except BaseException:
        shutil.rmtree(current, dir_fd=directory, ignore_errors=True)
        raise
    _point(directory, DATA, current)
    _link(directory, {parts(volume, path)[0] for path in content.files})
    _tidy(directory, current)


def _says(directory: int, content: Content, group: int | None) -> bool:
    """Whether the directory already has exactly this content; if so, programs that watch it should not be woken."""
    try:
        with open_directory(os.readlink(DATA, dir_fd=directory), directory) as current:
            found = {path: (mode, data) for path, mode, data in _files(current)}
    except OSError:
        return False
    wanted = {path: (_mode(content, path, group), bytes(data)) for path, data in content.files.items()}
    visible = {name for name in os.listdir(directory) if not name.startswith("..")}
    return found == wanted and visible == {path.split("/", 1)[0] for path in wanted}


def _mode(content: Content, path: str, group: int | None) -> int:
    """The mode of a file. If the pod has a group (fsGroup), owner and group may always read it."""
    return content.modes.get(path, content.mode) & 0o777 | (0o440 if group is not None else 0)


def _files(top: int) -> Iterator[tuple[str, int, bytes]]:
    for at, _, names, directory in os.fwalk(".", dir_fd=top, follow_symlinks=False):
        for name in names:
            with open(os.open(name, _READ, dir_fd=directory), "rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                yield os.path.normpath(os.path.join(at, name)), mode, file.read()


def _write_file(top: int, path: tuple[str, ...], data: bytes, mode: int, group: int | None) -> None:
    with contextlib.ExitStack() as open_directories:
        directory = top
        for step in path[:-1]:
            make_directory(step, directory, 0o755)
            descriptor = os.open(step, DIRECTORY, dir_fd=directory)
            open_directories.callback(os.close, descriptor)
            directory = descriptor
        with open(os.open(path[-1], _NEW_FILE, 0o600, dir_fd=directory), "wb") as file:
            file.write(data)
            give(file.fileno(), group)
            os.fchmod(file.fileno(), mode)


def give(descriptor: int, group: int | None) -> bool:
    """Changes the file's group to the pod's (fsGroup). Returns False if we may not: root always may, other users only to their own groups."""
    if group is None:
        return True
    try:
        os.fchown(descriptor, -1, group)
    except (OSError, OverflowError):
        return False
    return True


def _link(directory: int, names: set[str]) -> None:
    for name in names:
        target = f"{DATA}/{name}"
        with contextlib.suppress(OSError):
            if os.readlink(name, dir_fd=directory) == target:
                continue
        _point(directory, name, target)
    for name in os.listdir(directory):
        if not name.startswith("..") and name not in names:
            os.unlink(name, dir_fd=directory)


def _point(directory: int, name: str, target: str) -> None:
    """Creates or replaces a symbolic link atomically."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_NEXT, dir_fd=directory)  # left by a process that died before the rename
    os.symlink(target, _NEXT, dir_fd=directory)
    os.rename(_NEXT, name, src_dir_fd=directory, dst_dir_fd=directory)


def _tidy(directory: int, current: str) -> None:
    """Removes the previous files, and leftovers of an earlier process that died."""
    for name in os.listdir(directory):
        if name.startswith("..") and name not in (DATA, current):
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                shutil.rmtree(name, dir_fd=directory)
            else:
                os.unlink(name, dir_fd=directory)
