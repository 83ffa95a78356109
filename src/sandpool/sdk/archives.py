"""Local directories as tar archives: TreePieces packs one for an upload, Extraction unpacks a download.

TreePieces needs constant memory. It packs files, directories and symlinks, with names relative to the directory; sockets, devices and what
cannot be opened are named in `skipped`. A file that changes its size meanwhile keeps the size that it had when it was reached: it is
cut off, or filled up with zeros.

Extraction writes below one directory and nowhere else, whatever the archive says. It walks every name with open directories and without
following symlinks, not even those that the archive itself created before. It refuses absolute names and `..`; it leaves out and names
symlinks that lead out of the directory, and everything that is no file, directory or symlink. Of modes it takes only permissions, and
nobody else may write.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import FileIO

from sandpool.sdk.local_files import TAKEN
from sandpool.wire.tar import MOST_MEMBERS, BadArchive, Member, TarReader, describe

PIECE = 256 * 1024


class TreePieces:
    def __init__(self, top: str) -> None:
        self._top = top
        self.files = 0
        self.size = 0
        self.skipped: list[str] = []

    def measure(self) -> int:
        """Bytes of all files, as they are now."""
        total = 0
        for path, _, files in os.walk(self._top):
            for name in files:
                with suppress(OSError):
                    found = os.lstat(os.path.join(path, name))
                    total += found.st_size if stat.S_ISREG(found.st_mode) else 0
        return total

    def __iter__(self) -> Iterator[bytes]:
        """Small members travel together: a tree of many small files is not many small writes."""
        held = bytearray()
        for piece in self._members():
            held += piece
            if len(held) >= PIECE:
                yield bytes(held)
                held.clear()
        held += bytes(2 * tarfile.BLOCKSIZE)
        yield bytes(held)

    def _members(self) -> Iterator[bytes]:
        for path, directories, files in os.walk(self._top, onerror=self._unreadable):
            below = os.path.relpath(path, self._top)
            prefix = "" if below == "." else f"{below}/"
            directories.sort()
            for name in directories + sorted(files):
                yield from self._member(os.path.join(path, name), prefix + name)

    def _unreadable(self, error: OSError) -> None:
        if error.filename == self._top:
            raise error
        self.skipped.append(os.path.relpath(error.filename, self._top))

    def _member(self, path: str, name: str) -> Iterator[bytes]:
        try:
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode):
                yield from self._file(path, name)
                return
            member = describe(name, found, os.readlink(path) if stat.S_ISLNK(found.st_mode) else "")
        except (FileNotFoundError, PermissionError):
            member = None
        if member is None:
            self.skipped.append(name)
        else:
            yield _head(member)

    def _file(self, path: str, name: str) -> Iterator[bytes]:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:
            member = describe(name, os.fstat(fd))
            if member is None or not member.isreg():
                self.skipped.append(name)
                return
            yield _head(member)
            left = member.size
            while left:
                piece = file.read(min(PIECE, left)) or bytes(min(PIECE, left))
                left -= len(piece)
                self.size += len(piece)
                yield piece
            self.files += 1
            yield bytes(-member.size % tarfile.BLOCKSIZE)


def _head(member: tarfile.TarInfo) -> bytes:
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_NAME = 4096
_NAME, MOST_NAMES = 100, 128 << 20
"""Bytes that a name takes beside its letters, and of all names that are kept until the end."""
_LATEST = 1 << 40
"""Seconds since 1970 that every file system can say."""


class Extraction:
    """Use it as a context manager; `feed` it the archive; then `finish`."""

    def __init__(
        self,
        destination: str,
        report: Callable[[int], object] = lambda size: None,
        allowed: Callable[[int], object] = lambda size: None,
    ) -> None:
        """`report` is called with how many bytes of content were written each time; `allowed`, before that, with how many there will be in all,
        and raises if that is too much."""
        os.makedirs(destination, exist_ok=True)
        self._top = os.open(destination, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._reader = TarReader()
        self._file: FileIO | None = None
        self._member: Member | None = None
        self._left = 0
        self._directory_modes: list[tuple[str, int]] = []
        self._promised = 0  # bytes of content, also of what is left out
        self._made = 0  # directories: the name of one member may imply two thousand
        self._names = 0  # bytes of the names that are remembered
        self._report = report
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
            self._directory_modes
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
            self._directory_modes.append((self._remembered("/".join(names)), member.mode & TAKEN))
        elif member.type == "file":
            self._begin_file(names, member)
        elif member.type == "symlink" and _stays_inside(names, member.target):
            self._link(names, member.target)
        else:
            self.skipped.append(self._remembered(member.name))

    def _remembered(self, name: str) -> str:
        self._names += len(name) + _NAME
        if self._names > MOST_NAMES:
            raise BadArchive(
                "it has too many directories, and members that are left out, with long names; copy parts of it"
            )
        return name

    def _begin_file(self, names: list[str], member: Member) -> None:
        directory = self._walk(names[:-1])
        try:
            _clear(directory, names[-1])
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(names[-1], flags, 0o600, dir_fd=directory)
        finally:
            os.close(directory)
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
        self._report(len(data))
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
        directory = self._walk(names[:-1])
        try:
            _clear(directory, names[-1])
            os.symlink(target, names[-1], dir_fd=directory)
        finally:
            os.close(directory)

    def _walk(self, names: list[str]) -> int:
        """An open directory; those that are missing on the way are made."""
        here = os.dup(self._top)
        for at, name in enumerate(names):
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=here)
                    self._made += 1
                below = os.open(name, _DIRECTORY, dir_fd=here)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    path = "/".join(names[: at + 1])
                    raise BadArchive(
                        f"{path!r} is not a directory at the destination; remove it or use another one"
                    ) from None
                raise
            finally:
                os.close(here)
            here = below
            if self._made > MOST_MEMBERS:
                os.close(here)
                raise BadArchive(f"its members are in more than {MOST_MEMBERS} directories")
        return here

    def _set_mode(self, name: str, mode: int) -> None:
        with suppress(OSError, BadArchive):
            directory = self._walk(name.split("/"))
            try:
                os.fchmod(directory, mode)
            finally:
                os.close(directory)


def _clear(directory: int, name: str) -> None:
    """What is there makes room, if it is a file or a link."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        raise BadArchive(
            f"a directory is where the file {name!r} should go; remove it or use another destination"
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
    """Whether a symlink can lead nowhere but inside. It may go up first, from the directory that it is in; going up later is
    refused, because what comes before may be another link, and the way up from there is not the one that is written."""
    if not target or target.startswith("/") or "\0" in target or len(target) > _LONGEST_NAME:
        return False
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    return up <= len(names) - 1 and ".." not in parts[up:]
