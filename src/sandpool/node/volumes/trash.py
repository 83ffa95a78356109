"""Removes directories that a sandbox has filled, however deep or large they are and whatever their modes forbid.

A directory is first moved into a trash directory in one step, and then emptied in small steps (openat.py); if this process dies, the next
one continues. All functions block; call them in threads.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from sandpool.node.openat import clear_directory, open_path, remove_if_empty, set_mode
from sandpool.node.volumes.directories import PRIVATE, make_private, open_directory


class Trash:
    """A trash directory, on the same file system as what is moved into it. Everything in it will be removed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def take(self, path: Path) -> Path | None:
        """Moves a file or directory into a new subdirectory of the trash and returns that, for `empty`. None if the path does not exist."""
        if not os.path.lexists(path):
            return None
        make_private(self._directory)
        mine = self._directory / secrets.token_hex(8)
        mine.mkdir(mode=PRIVATE)
        try:
            _make_movable(path)
            os.rename(path, mine / "0")
        except FileNotFoundError:
            mine.rmdir()
            return None
        except BaseException:
            mine.rmdir()
            raise
        return mine

    def leftovers(self) -> list[Path]:
        """What an earlier process did not finish removing."""
        try:
            return [self._directory / name for name in os.listdir(self._directory)]
        except FileNotFoundError:
            return []


class Steps:
    """A callable for `enough`: returns False `number` times, then True."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self) -> bool:
        self._left -= 1
        return self._left < 0


def empty(directory: Path, enough: Callable[[], bool]) -> bool:
    """Removes a directory of the trash. Returns False if `enough` returned True before it was done; call it again then."""
    try:
        with open_directory(directory) as top:
            while clear_directory(top, enough):
                if remove_if_empty(directory):
                    return True
    except FileNotFoundError:
        return True
    return False


def _make_movable(path: Path) -> None:
    """Makes a directory writable for us, whatever mode the sandbox gave it: an ordinary user needs write permission to move a directory."""
    if os.geteuid() == 0:
        return
    try:
        handle = open_path(os.fspath(path), None, os.O_DIRECTORY)
    except NotADirectoryError:
        return
    try:
        set_mode(handle, PRIVATE)
    finally:
        os.close(handle)
