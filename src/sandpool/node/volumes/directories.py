"""Names and directories of volumes on disk. Directories are opened component by component, never through a symbolic link.

A sandbox can put links anywhere in its volumes; nothing here follows one. Names that could lead out of their directory are refused.
Everything except the checks of names blocks; call it in threads. Errors are OSError.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.openat import DIRECTORY

MAX_NAME = 255  # bytes, in every file system that matters
MAX_PATH = 1024
MAX_DEPTH = 32
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def usable(text: str) -> bool:
    return _UID.fullmatch(text) is not None and ".." not in text


def directory_name(text: str, what: str) -> str:
    """Checks that a uid or a volume's name can be the name of a directory, and returns it."""
    if not usable(text):
        raise NodeError("InvalidVolume", f"{text[:80]!r} cannot be {what}: letters, digits, '-', '_' and '.' only")
    return text


def parts(volume: str, path: str) -> tuple[str, ...]:
    """Splits a path inside a volume, which must be relative and stay inside. Names that begin with `..` are reserved for us (content.py)."""
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
    """Checks the paths of a volume's files: none may be a directory above another."""
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


PRIVATE = 0o700


@contextlib.contextmanager
def open_directory(path: Path | str, within: int | None = None) -> Iterator[int]:
    """Opens a directory. With `within`, `path` is a single name in that open directory."""
    descriptor = os.open(path, DIRECTORY, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_private(path: Path) -> None:
    """Creates a directory, with its parents, that only we may enter. Other users of this machine then cannot reach the files in it, even
    those that a sandbox made readable for everybody."""
    path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{path} is not a folder of ours")
    if stat.S_IMODE(found.st_mode) != PRIVATE:
        path.chmod(PRIVATE)


def make_directory(name: str, within: int, mode: int) -> None:
    """Creates a directory with exactly this mode, whatever the umask. An existing one stays unchanged."""
    try:
        os.mkdir(name, PRIVATE, dir_fd=within)
    except FileExistsError:
        with open_directory(name, within):
            return
    with open_directory(name, within) as made:
        os.fchmod(made, mode)


_IN_MEMORY = frozenset({0x01021994, 0x858458F6})  # tmpfs, ramfs


def candidates(environ: Mapping[str, str]) -> tuple[Path, ...]:
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    return (*((Path(runtime),) if runtime.startswith("/") else ()), Path("/dev/shm"))  # noqa: S108 - see `memory_directory`


def memory_directory(places: Sequence[Path], owner: Path) -> Path | None:
    """The path of a private directory in the first candidate that is in memory. It is always the same for the same owner, and need not exist
    yet. A candidate is skipped if another user has already created something there under our name, or if a link is there."""
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
    """Whether a file or directory is on a file system in memory."""
    found = ctypes.create_string_buffer(512)  # struct statfs; its first word is the type
    statfs = ctypes.CDLL(None, use_errno=True).statfs
    if statfs(os.fsencode(path), found) != 0:
        raise OSError(ctypes.get_errno(), "statfs")
    return ctypes.c_long.from_buffer(found).value & 0xFFFFFFFF in _IN_MEMORY
