"""Puts the members of an archive below one local folder, whatever the archive says.

Every name is walked with open folders and without following symlinks, so nothing is written outside, also not through a link
that the archive itself made before. Absolute names and `..` are refused; symlinks that would lead out of the folder and
everything that is no file, folder or symlink are left out and named. Of modes only permissions are taken, and nobody else may write.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from io import FileIO

from sandpool.sdk.local_files import TAKEN
from sandpool.sdk.tar_reader import MOST_MEMBERS, BadArchive, Member, TarReader

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_NAME = 4096
_NAME, _MOST_NAMES = 100, 128 << 20
"""Bytes that a name takes beside its letters, and of all names that are kept until the end."""
_LATEST = 1 << 40
"""Seconds since 1970 that every file system can say."""


class Extraction:
    """Use it as a context manager; `feed` it the archive; then `finish`."""

    def __init__(
        self,
        destination: str,
        told: Callable[[int], object] = lambda size: None,
        allowed: Callable[[int], object] = lambda size: None,
    ) -> None:
        """`told` hears how many bytes of content were written each time; `allowed` hears before that how many there will be in all,
        and raises if that is too much."""
        os.makedirs(destination, exist_ok=True)
        self._top = os.open(destination, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._reader = TarReader()
        self._file: FileIO | None = None
        self._member: Member | None = None
        self._left = 0
        self._folder_modes: list[tuple[str, int]] = []
        self._promised = 0  # bytes of content, also of what is left out
        self._made = 0  # folders: the name of one member may imply two thousand
        self._names = 0  # bytes of the names that are remembered
        self._told = told
        self._allowed = allowed
        self.files = 0
        self.size = 0
        self.skipped: list[str] = []

    def __enter__(self) -> Extraction:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_file()
        os.close(self._top)

    def feed(self, data: bytes) -> None:
        for found in self._reader.feed(data):
            if isinstance(found, Member):
                self._begin(found)
            else:
                self._write(found)

    def finish(self) -> None:
        """After the last byte. BadArchive if it is not all there."""
        if not self._reader.ended:
            raise BadArchive("the archive ends in the middle")
        for name, mode in reversed(
            self._folder_modes
        ):  # last: one without the right to write could not have been filled
            self._set_mode(name, mode)

    def _begin(self, member: Member) -> None:
        self._close_file()
        self._promised += member.size
        self._allowed(self._promised)
        names = _checked(member.name)
        if not names:
            if member.type != "directory":
                raise BadArchive(f"the member {member.name!r} has no name")
            return
        if member.type == "directory":
            os.close(self._walk(names))
            self._folder_modes.append((self._remembered("/".join(names)), member.mode & TAKEN))
        elif member.type == "file":
            self._begin_file(names, member)
        elif member.type == "symlink" and _stays_inside(names, member.target):
            self._link(names, member.target)
        else:
            self.skipped.append(self._remembered(member.name))

    def _remembered(self, name: str) -> str:
        self._names += len(name) + _NAME
        if self._names > _MOST_NAMES:
            raise BadArchive(
                "it has too many folders, and members that are left out, with long names; copy parts of it"
            )
        return name

    def _begin_file(self, names: list[str], member: Member) -> None:
        folder = self._walk(names[:-1])
        try:
            _clear(folder, names[-1])
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(names[-1], flags, 0o600, dir_fd=folder)
        finally:
            os.close(folder)
        self._file, self._member, self._left = FileIO(fd, "w"), member, member.size
        if not member.size:
            self._end_file()

    def _write(self, data: bytes) -> None:
        if self._file is None:  # of a member that was left out
            return
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) or 0 :]
        self._left -= len(data)
        self.size += len(data)
        self._told(len(data))
        if not self._left:
            self._end_file()

    def _end_file(self) -> None:
        assert self._file is not None
        assert self._member is not None
        os.fchmod(self._file.fileno(), self._member.mode & TAKEN)
        modified = min(max(self._member.modified, 0), _LATEST)
        os.utime(self._file.fileno(), (modified, modified))
        self.files += 1
        self._close_file()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _link(self, names: list[str], target: str) -> None:
        folder = self._walk(names[:-1])
        try:
            _clear(folder, names[-1])
            os.symlink(target, names[-1], dir_fd=folder)
        finally:
            os.close(folder)

    def _walk(self, names: list[str]) -> int:
        """An open folder; those that are missing on the way are made."""
        here = os.dup(self._top)
        for at, name in enumerate(names):
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=here)
                    self._made += 1
                below = os.open(name, _FOLDER, dir_fd=here)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    path = "/".join(names[: at + 1])
                    raise BadArchive(
                        f"{path!r} is not a folder at the destination; remove it or use another one"
                    ) from None
                raise
            finally:
                os.close(here)
            here = below
            if self._made > MOST_MEMBERS:
                os.close(here)
                raise BadArchive(f"its members are in more than {MOST_MEMBERS} folders")
        return here

    def _set_mode(self, name: str, mode: int) -> None:
        with suppress(OSError, BadArchive):
            folder = self._walk(name.split("/"))
            try:
                os.fchmod(folder, mode)
            finally:
                os.close(folder)


def _clear(folder: int, name: str) -> None:
    """What is there makes room, if it is a file or a link."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        raise BadArchive(
            f"a folder is where the file {name!r} should go; remove it or use another destination"
        ) from None


def _checked(name: str) -> list[str]:
    """The parts of a member's name."""
    if name.startswith("/") or "\0" in name or len(name) > _LONGEST_NAME:
        raise BadArchive(f"the member {name[:200]!r} has an absolute or impossible name")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise BadArchive(f"the member {name[:200]!r} leads out of the archive")
    return parts


def _stays_inside(names: list[str], target: str) -> bool:
    """Whether a symlink can lead nowhere but inside. It may go up first, from the folder that it is in; going up later is
    refused, because what comes before may be another link, and the way up from there is not the one that is written."""
    if not target or target.startswith("/") or "\0" in target or len(target) > _LONGEST_NAME:
        return False
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    return up <= len(names) - 1 and ".." not in parts[up:]
