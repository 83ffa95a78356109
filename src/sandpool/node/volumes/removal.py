"""Taking away folders that a sandbox filled: as deep, as wide and as closed as it liked.

The folder is first moved into a trash folder of ours, at once, and then emptied bit by bit, by whoever comes next if this process
dies. Every step is relative to an open folder, so no link is ever followed; what lies too deep is moved up into the trash
and emptied in its turn, so that depth costs neither stack nor open files. All of it blocks; it runs in threads.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from sandpool.node.openat import discard, held, set_mode
from sandpool.node.volumes.folders import PRIVATE, opened, private

_DEPTH = 24


class Trash:
    """One folder, on the same file system as what it takes. Everything in it is to be removed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, path: Path) -> Path | None:
        """Moves a file or folder in here, under a name of its own, into a folder that `empty` can be asked for. None if it is
        not there."""
        if not os.path.lexists(path):
            return None
        private(self._folder)
        mine = self._folder / secrets.token_hex(8)
        mine.mkdir(mode=PRIVATE)
        try:
            _open_up(None, path)
            os.rename(path, mine / "0")
        except FileNotFoundError:
            mine.rmdir()
            return None
        except BaseException:
            mine.rmdir()
            raise
        return mine

    def left(self) -> list[Path]:
        """What an earlier process did not come to remove."""
        try:
            return [self._folder / name for name in os.listdir(self._folder)]
        except FileNotFoundError:
            return []


def empty(folder: Path, enough: Callable[[], bool]) -> bool:
    """Removes a folder of the trash; False if there was `enough` before the end, and it should be called again."""
    try:
        with opened(folder) as top:
            while _clear(top, top, 0, enough):
                if _gone(folder):
                    return True
    except FileNotFoundError:
        return True
    return False


def _clear(folder: int, top: int, depth: int, enough: Callable[[], bool]) -> bool:
    """Everything in an open folder. What lies too deep is moved up to the top, where it comes again. Only what was done counts,
    so that each call comes further than the one before."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                discard(entry.name, folder)
            elif depth == _DEPTH:
                _open_up(folder, entry.name)
                os.rename(entry.name, secrets.token_hex(8), src_dir_fd=folder, dst_dir_fd=top)
            else:
                _open_up(folder, entry.name)
                with opened(entry.name, folder) as inner:
                    if not _clear(inner, top, depth + 1, enough):
                        return False
                _gone(entry.name, folder)
            if enough():
                return False
    return True


def _gone(name: Path | str, within: int | None = None) -> bool:
    """A scan may miss what came or went meanwhile: then the folder is not empty, and comes again."""
    try:
        os.rmdir(name, dir_fd=within)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        return False
    return True


def _open_up(within: int | None, name: Path | str) -> None:
    """A sandbox may have closed its folders to us. An ordinary user must be able to write a folder even to move it."""
    if os.geteuid() == 0:
        return
    try:
        handle = held(os.fspath(name), within, os.O_DIRECTORY)
    except NotADirectoryError:
        return
    try:
        set_mode(handle, PRIVATE)
    finally:
        os.close(handle)
