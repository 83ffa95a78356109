"""Files that the API holds, written so that a reader sees all of the old ones or all of the new ones.

    ..data -> ..1f3a        a symbolic link that is replaced in one step
    ..1f3a/                 the files as they are now
    name -> ..data/name     one for each first step of a path

This is the scheme that programs know from Kubernetes: they watch `..data`. All of it blocks; it runs in threads.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator

from sandpool.node.openat import FOLDER
from sandpool.node.volumes.folders import make, opened
from sandpool.node.volumes.names import checked, parts
from sandpool.node.volumes.spec import Content

DATA = "..data"
_NEXT = "..data_next"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # waits for nobody who has a lease on it
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write(folder: int, volume: str, content: Content, group: int | None) -> None:
    """Brings an open folder up to date. NodeError if a path is not possible, before anything was changed."""
    checked(volume, content.files)
    if _says(folder, content, group):
        return
    current = f"..{secrets.token_hex(6)}"
    try:
        make(current, folder, 0o755)
        with opened(current, folder) as fresh:
            for path, data in content.files.items():
                _write_file(fresh, parts(volume, path), data, _mode(content, path, group), group)
    except BaseException:
        shutil.rmtree(current, dir_fd=folder, ignore_errors=True)
        raise
    _point(folder, DATA, current)
    _link(folder, {parts(volume, path)[0] for path in content.files})
    _tidy(folder, current)


def _says(folder: int, content: Content, group: int | None) -> bool:
    """Whether exactly this is there already: nobody should be woken for nothing."""
    try:
        with opened(os.readlink(DATA, dir_fd=folder), folder) as current:
            found = {path: (mode, data) for path, mode, data in _files(current)}
    except OSError:
        return False
    wanted = {path: (_mode(content, path, group), bytes(data)) for path, data in content.files.items()}
    visible = {name for name in os.listdir(folder) if not name.startswith("..")}
    return found == wanted and visible == {path.split("/", 1)[0] for path in wanted}


def _mode(content: Content, path: str, group: int | None) -> int:
    """A pod's group may read what is given to it."""
    return content.modes.get(path, content.mode) & 0o777 | (0o440 if group is not None else 0)


def _files(top: int) -> Iterator[tuple[str, int, bytes]]:
    for at, _, names, folder in os.fwalk(".", dir_fd=top, follow_symlinks=False):
        for name in names:
            with open(os.open(name, _READ, dir_fd=folder), "rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                yield os.path.normpath(os.path.join(at, name)), mode, file.read()


def _write_file(top: int, path: tuple[str, ...], data: bytes, mode: int, group: int | None) -> None:
    with contextlib.ExitStack() as open_folders:
        folder = top
        for step in path[:-1]:
            make(step, folder, 0o755)
            descriptor = os.open(step, FOLDER, dir_fd=folder)
            open_folders.callback(os.close, descriptor)
            folder = descriptor
        with open(os.open(path[-1], _NEW_FILE, 0o600, dir_fd=folder), "wb") as file:
            file.write(data)
            give(file.fileno(), group)
            os.fchmod(file.fileno(), mode)


def give(descriptor: int, group: int | None) -> bool:
    """To the pod's group, where we may: root may always, others only to groups of their own."""
    if group is None:
        return True
    try:
        os.fchown(descriptor, -1, group)
    except (OSError, OverflowError):
        return False
    return True


def _link(folder: int, names: set[str]) -> None:
    for name in names:
        target = f"{DATA}/{name}"
        with contextlib.suppress(OSError):
            if os.readlink(name, dir_fd=folder) == target:
                continue
        _point(folder, name, target)
    for name in os.listdir(folder):
        if not name.startswith("..") and name not in names:
            os.unlink(name, dir_fd=folder)


def _point(folder: int, name: str, target: str) -> None:
    """A link that is there, or is replaced, in one step."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_NEXT, dir_fd=folder)  # of a process that died in between
    os.symlink(target, _NEXT, dir_fd=folder)
    os.rename(_NEXT, name, src_dir_fd=folder, dst_dir_fd=folder)


def _tidy(folder: int, current: str) -> None:
    """Files of before, and what an earlier process did not come to finish."""
    for name in os.listdir(folder):
        if name.startswith("..") and name not in (DATA, current):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                shutil.rmtree(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
