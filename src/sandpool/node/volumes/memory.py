"""A folder in memory for secrets, where this machine has one that an ordinary user may use: they then never reach a disk."""

from __future__ import annotations

import ctypes
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

_IN_MEMORY = frozenset({0x01021994, 0x858458F6})  # tmpfs, ramfs


def candidates(environ: Mapping[str, str]) -> tuple[Path, ...]:
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    return (*((Path(runtime),) if runtime.startswith("/") else ()), Path("/dev/shm"))  # noqa: S108 - see `memory_folder`


def memory_folder(places: Sequence[Path], owner: Path) -> Path | None:
    """A folder for us alone in the first place that is in memory, always the same for the same owner; it need not be there
    yet. A place where somebody else put something under our name, or a link, is passed over."""
    name = f"sandpool-{os.geteuid()}-{hashlib.sha256(os.fsencode(owner.absolute())).hexdigest()[:16]}"
    for place in places:
        try:
            if in_memory(place) and os.access(place, os.W_OK | os.X_OK) and _ours(place / name):
                return place / name
        except OSError:
            continue
    return None


def _ours(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def in_memory(path: Path | str) -> bool:
    """Whether a file or folder takes memory, not disk."""
    found = ctypes.create_string_buffer(512)  # struct statfs; its first word is the type
    statfs = ctypes.CDLL(None, use_errno=True).statfs
    if statfs(os.fsencode(path), found) != 0:
        raise OSError(ctypes.get_errno(), "statfs")
    return ctypes.c_long.from_buffer(found).value & 0xFFFFFFFF in _IN_MEMORY
