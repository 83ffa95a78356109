"""Names that become names of files. Pure. What could lead out of its folder, or could not be a file, is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from sandpool.base.errors import NodeError

MAX_NAME = 255  # bytes, in every file system that matters
MAX_PATH = 1024
MAX_DEPTH = 32
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def usable(text: str) -> bool:
    return _UID.fullmatch(text) is not None and ".." not in text


def folder_name(text: str, what: str) -> str:
    """A uid or the name of a volume, as the name of a folder."""
    if not usable(text):
        raise NodeError("InvalidVolume", f"{text[:80]!r} cannot be {what}: letters, digits, '-', '_' and '.' only")
    return text


def parts(volume: str, path: str) -> tuple[str, ...]:
    """The steps of a path inside a volume. It is relative and stays inside; `..` at the start of a name is our own mark."""
    found = tuple(path.split("/"))
    fits = len(path) <= MAX_PATH and len(found) <= MAX_DEPTH
    if not fits or "\0" in path or not all(_step(each) for each in found):
        raise NodeError(
            "InvalidVolume",
            f"volume {volume}: the path {path[:80]!r} is not possible; use a relative one without '..', "
            f"of at most {MAX_PATH} characters and {MAX_DEPTH} steps",
        )
    return found


def checked(volume: str, paths: Iterable[str]) -> None:
    """No path is a folder of another one."""
    known = {parts(volume, path) for path in paths}
    for each in known:
        for end in range(1, len(each)):
            if each[:end] in known:
                raise NodeError(
                    "InvalidVolume",
                    f"volume {volume}: {'/'.join(each[:end])} is a file and also the folder of {'/'.join(each)}; "
                    "give one of them another path",
                )


def _step(name: str) -> bool:
    try:
        return name not in ("", ".") and not name.startswith("..") and len(os.fsencode(name)) <= MAX_NAME
    except UnicodeEncodeError:
        return False
