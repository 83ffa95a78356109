"""Packs and unpacks whole trees as tar, in constant memory.

A thread reads or writes the archive at one end of a pipe, and the event loop has the other end, so the pipe is the back pressure. Incoming
archives are hostile: every member's name is resolved below the root like any other path.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import stat
import tarfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from io import FileIO

from sandpool.boxd.files.root import Place, Root, open_at, refusals
from sandpool.boxd.ready import readable, writable
from sandpool.wire.codes import Code, Refused
from sandpool.wire.tar import MOST_MEMBERS, describe

PIECE = 256 * 1024


async def pack(root: Root, path: str) -> AsyncGenerator[bytes, None]:
    """Streams the tree at a path; names in the archive are relative to it."""
    with root.opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        directory = os.dup(fd)
    source, sink = _pipe()
    os.set_blocking(source, False)
    thread = threading.Thread(target=_write_tree, args=(directory, sink), daemon=True)
    thread.start()
    try:
        while piece := await _read_some(source):
            yield piece
    finally:
        os.close(source)  # a thread that is still writing fails with EPIPE, and ends
        await asyncio.to_thread(thread.join)


def _write_tree(directory: int, sink: int) -> None:
    with suppress(OSError), FileIO(sink, "w") as pipe:
        try:
            with tarfile.open(fileobj=pipe, mode="w|", format=tarfile.PAX_FORMAT, bufsize=PIECE) as archive:
                _add_directory(archive, directory, "")
        finally:
            os.close(directory)


def _add_directory(archive: tarfile.TarFile, top: int, prefix: str) -> None:
    for path, directories, files, fd in os.fwalk(".", dir_fd=top, follow_symlinks=False):
        here = prefix + path.removeprefix(".").lstrip("/")
        for name in sorted(directories) + sorted(files):
            with suppress(FileNotFoundError, PermissionError):
                _add(archive, Place(fd, name), f"{here}/{name}".lstrip("/"))


def _add(archive: tarfile.TarFile, place: Place, name: str) -> None:
    found = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    link = os.readlink(place.name, dir_fd=place.directory) if stat.S_ISLNK(found.st_mode) else ""
    member = describe(name, found, link)
    if member is None:
        return
    if not member.isreg():
        archive.addfile(member)
        return
    with FileIO(open_at(place, os.O_RDONLY | os.O_NONBLOCK)) as file:
        member.size = os.fstat(file.fileno()).st_size
        archive.addfile(member, file)


async def unpack(root: Root, path: str, pieces: AsyncIterator[bytes]) -> int:
    """Extracts an archive below a path, over existing files. Returns the number of files."""
    source, sink = _pipe()
    os.set_blocking(sink, False)
    reading = asyncio.ensure_future(asyncio.to_thread(_read_tree, root, path, source))
    try:
        async for piece in pieces:
            if not await _write_some(sink, piece):
                break  # the thread stopped reading; its error says why
    finally:
        os.close(sink)
        count = await reading
    return count


def _read_tree(root: Root, path: str, source: int) -> int:
    count = 0
    directories: list[tuple[str, int]] = []
    with FileIO(source) as pipe:
        try:
            with tarfile.open(fileobj=pipe, mode="r|", bufsize=PIECE) as archive:
                for member in archive:
                    count += 1
                    if count > MOST_MEMBERS:
                        raise Refused(
                            Code.TOO_LARGE, f"the archive has more than {MOST_MEMBERS} members; send it in parts"
                        )
                    name = f"{path.rstrip('/')}/{member.name}"
                    _put(root, name, archive, member)
                    if member.isdir():
                        directories.append((name, member.mode & 0o777))
        except tarfile.TarError as error:
            raise Refused(Code.INVALID, f"this is not a tar archive: {error}") from None
        while pipe.read(PIECE):  # padding after the end of the archive
            pass
    for name, mode in reversed(
        directories
    ):  # modes last: a directory without write permission could not have been filled
        with suppress(Refused, OSError), root.opened(name, os.O_RDONLY | os.O_DIRECTORY) as directory:
            os.fchmod(directory, mode)
    return count


def _put(root: Root, path: str, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    if any(part == ".." for part in member.name.split("/")):
        raise Refused(Code.DENIED, f"the archive's member {member.name!r} leads out of it")
    with root.place(path, follow=False, parents=True) as place, refusals(path):
        if member.isdir():
            if not place.is_root:
                with suppress(FileExistsError):
                    os.mkdir(place.name, member.mode & 0o777 | 0o700, dir_fd=place.directory)
            return
        if not (member.isreg() or member.issym()):
            raise Refused(
                Code.INVALID, f"the archive's member {member.name!r} is neither a file, a directory nor a symlink"
            )
        with suppress(FileNotFoundError):
            os.unlink(place.name, dir_fd=place.directory)
        if member.issym():
            os.symlink(member.linkname, place.name, dir_fd=place.directory)
            return
        content = archive.extractfile(member)
        assert content is not None
        with FileIO(open_at(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, member.mode & 0o777), "w") as file:
            shutil.copyfileobj(content, file, PIECE)
            os.utime(file.fileno(), (member.mtime, member.mtime))


def _pipe() -> tuple[int, int]:
    """A pipe with a large buffer, so that the event loop and the thread switch less often."""
    source, sink = os.pipe()
    with suppress(OSError):  # over the user's limit for pipe buffers it keeps the default size
        fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, 4 * PIECE)
    return source, sink


async def _read_some(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, PIECE)
        except BlockingIOError:
            await readable(fd)


async def _write_some(fd: int, data: bytes) -> bool:
    """Writes data; False if the reader is gone."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            await writable(fd)
        except BrokenPipeError:
            return False
    return True
