"""What is there: one file, or a folder's entries."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any

from sandpool.boxd.files.root import Place, Root, refusals

MOST_ENTRIES = 100_000


def info(place: Place, name: str) -> dict[str, Any]:
    """What a place holds, without following a symlink."""
    found = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    value: dict[str, Any] = {
        "name": name,
        "type": type_of(found.st_mode),
        "size": found.st_size,
        "mode": f"{stat.S_IMODE(found.st_mode):04o}",
        "modified": found.st_mtime,
        "uid": found.st_uid,
        "gid": found.st_gid,
    }
    if stat.S_ISLNK(found.st_mode):
        value["target"] = os.readlink(place.name, dir_fd=place.folder)
    return value


def stat_of(root: Root, path: str, *, follow: bool = True) -> dict[str, Any]:
    name = os.path.basename(path.rstrip("/")) or "/"
    with root.place(path, follow=follow) as place, refusals(path):
        return info(place, name)


def entries(root: Root, path: str, describe: Callable[[Place, str], Any] = info) -> list[Any]:
    """By name. One that vanishes meanwhile, or that `describe` gives None for, is left out."""
    found = []
    with root.opened(path, os.O_RDONLY | os.O_DIRECTORY) as folder, refusals(path):
        for name in sorted(os.listdir(folder))[:MOST_ENTRIES]:
            try:
                value = describe(Place(folder, name), name)
            except FileNotFoundError:
                continue
            if value is not None:
                found.append(value)
    return found


def type_of(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"
