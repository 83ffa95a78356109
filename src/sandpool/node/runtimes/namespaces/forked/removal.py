"""Taking away what a sandbox leaves: control groups, and folders that somebody hostile has filled."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Sequence

from sandpool.node.openat import discard, open_folder_anyway
from sandpool.node.runtimes.namespaces.forked import cgroup_files
from sandpool.node.runtimes.namespaces.forked.frames import Refused, doing

PATIENCE = 5.0
PAUSE = 0.002
MOST_NAMES = 1000  # in memory


def remove_cgroups(paths: Sequence[str]) -> None:
    """With all below them, and whoever is still in them."""
    deadline = time.monotonic() + PATIENCE
    for path in paths:
        for folder in _deepest_first(path):
            _remove_cgroup(folder, deadline)


def _deepest_first(path: str) -> list[str]:
    return [folder for folder, _, _ in os.walk(path, topdown=False)]


def _remove_cgroup(path: str, deadline: float) -> None:
    while True:
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise Refused("Cgroups", f"cannot remove {path}: {(error.strerror or '').lower()}") from error
        _end_members(path)
        time.sleep(PAUSE)


def _end_members(path: str) -> None:
    for file, value in (("cgroup.freeze", "0"), ("freezer.state", "THAWED"), ("cgroup.kill", "1")):
        with contextlib.suppress(OSError):
            cgroup_files.write(f"{path}/{file}", value)
    if not os.path.exists(f"{path}/cgroup.kill"):
        _end_each(f"{path}/cgroup.procs")


def _end_each(members: str) -> None:
    """On version 1, and on kernels before 5.14. Whoever is opened and still a member afterwards is the one that was listed."""
    for pid in cgroup_files.read(members).split():
        with contextlib.suppress(OSError):
            process = os.pidfd_open(int(pid))
            try:
                if pid in cgroup_files.read(members).split():
                    signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)


def empty(path: str, *, itself: bool = False) -> None:
    """Removes all that is in a folder. Trees may be deeper than any recursion, wider than fits into memory, and unreadable to their owner:
    what is found in a folder is moved up to the top, so that nothing is ever more than two steps away, and only so many names are
    ever held at a time."""
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        with doing(f"empty {path}", "Removal"):
            _empty(top)
    finally:
        os.close(top)
    if itself:
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(path)


def _empty(top: int) -> None:
    moved = 0
    mark = os.urandom(8).hex()
    while pending := _unlink_some(top):
        for name in pending:
            with contextlib.suppress(FileNotFoundError):  # somebody else removes it, too
                folder = open_folder_anyway(name, top)
                try:
                    while found := _unlink_some(folder):
                        for inner in found:
                            os.rename(inner, f"{mark}-{moved}", src_dir_fd=folder, dst_dir_fd=top)
                            moved += 1
                finally:
                    os.close(folder)
                os.rmdir(name, dir_fd=top)


def _unlink_some(folder: int) -> list[str]:
    """Removes what is no folder and all empty folders, up to the first so many that are not empty, which are the answer. None: all is
    gone."""
    os.fchmod(folder, 0o700)
    left: list[str] = []
    found = True
    while found and not left:  # again: who removes while he lists may be shown less than there is
        found = False
        with os.scandir(folder) as entries:
            for entry in entries:
                found = True
                if not _unlinked(entry, folder):
                    left.append(entry.name)
                    if len(left) == MOST_NAMES:
                        break
    return left


def _unlinked(entry: os.DirEntry[str], folder: int) -> bool:
    """False for a folder with something in it."""
    try:
        if not entry.is_dir(follow_symlinks=False):
            discard(entry.name, folder)
        else:
            os.rmdir(entry.name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True
