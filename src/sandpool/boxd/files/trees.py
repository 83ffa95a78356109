"""Whole trees as tar, in both directions, in constant memory.

The archive is made and read by a thread at one end of a pipe; the event loop has the other end, so the pipe itself holds back
whoever is faster. What comes in is hostile: every name of it is resolved below the root like any other path.
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

PIECE = 256 * 1024
MOST_MEMBERS = 1_000_000


async def pack(root: Root, path: str) -> AsyncGenerator[bytes, None]:
    """The tree at a path; names in the archive are relative to it."""
    with root.opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        folder = os.dup(fd)
    source, sink = _pipe()
    os.set_blocking(source, False)
    thread = threading.Thread(target=_write_tree, args=(folder, sink), daemon=True)
    thread.start()
    try:
        while piece := await _read_some(source):
            yield piece
    finally:
        os.close(source)  # a thread that still writes fails, and ends
        await asyncio.to_thread(thread.join)


def _write_tree(folder: int, sink: int) -> None:
    with suppress(OSError), FileIO(sink, "w") as pipe:
        try:
            with tarfile.open(fileobj=pipe, mode="w|", format=tarfile.PAX_FORMAT, bufsize=PIECE) as archive:
                _add_folder(archive, folder, "")
        finally:
            os.close(folder)


def _add_folder(archive: tarfile.TarFile, top: int, prefix: str) -> None:
    for path, folders, files, fd in os.fwalk(".", dir_fd=top, follow_symlinks=False):
        here = prefix + path.removeprefix(".").lstrip("/")
        for name in sorted(folders) + sorted(files):
            with suppress(FileNotFoundError, PermissionError):
                _add(archive, Place(fd, name), f"{here}/{name}".lstrip("/"))


def _add(archive: tarfile.TarFile, place: Place, name: str) -> None:
    found = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    member = tarfile.TarInfo(name)
    member.mode, member.mtime = stat.S_IMODE(found.st_mode), int(found.st_mtime)
    if stat.S_ISLNK(found.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(place.name, dir_fd=place.folder)
        archive.addfile(member)
    elif stat.S_ISDIR(found.st_mode):
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    elif stat.S_ISREG(found.st_mode):
        with FileIO(open_at(place, os.O_RDONLY | os.O_NONBLOCK)) as file:
            member.size = os.fstat(file.fileno()).st_size
            archive.addfile(member, file)


async def unpack(root: Root, path: str, pieces: AsyncIterator[bytes]) -> int:
    """Puts an archive's files below a path, over what is there. How many were put."""
    source, sink = _pipe()
    os.set_blocking(sink, False)
    reading = asyncio.ensure_future(asyncio.to_thread(_read_tree, root, path, source))
    try:
        async for piece in pieces:
            if not await _write_some(sink, piece):
                break  # the reader has had enough; it says why
    finally:
        os.close(sink)
        count = await reading
    return count


def _read_tree(root: Root, path: str, source: int) -> int:
    count = 0
    folders: list[tuple[str, int]] = []
    with FileIO(source) as pipe:
        try:
            with tarfile.open(fileobj=pipe, mode="r|", bufsize=PIECE) as archive:
                for member in archive:
                    count += 1
                    if count > MOST_MEMBERS:
                        raise Refused(Code.TOO_LARGE, f"an archive of more than {MOST_MEMBERS} files")
                    name = f"{path.rstrip('/')}/{member.name}"
                    _put(root, name, archive, member)
                    if member.isdir():
                        folders.append((name, member.mode & 0o777))
        except tarfile.TarError as error:
            raise Refused(Code.INVALID, f"this is no tar archive: {error}") from None
        while pipe.read(PIECE):  # padding after the end
            pass
    for name, mode in reversed(folders):  # last: one without the right to write could not have been filled
        with suppress(Refused, OSError), root.opened(name, os.O_RDONLY | os.O_DIRECTORY) as folder:
            os.fchmod(folder, mode)
    return count


def _put(root: Root, path: str, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    if any(part == ".." for part in member.name.split("/")):
        raise Refused(Code.DENIED, f"the archive's member {member.name!r} leads out of it")
    with root.place(path, follow=False, parents=True) as place, refusals(path):
        if member.isdir():
            if not place.is_root:
                with suppress(FileExistsError):
                    os.mkdir(place.name, member.mode & 0o777 | 0o700, dir_fd=place.folder)
            return
        if not (member.isreg() or member.issym()):
            raise Refused(Code.INVALID, f"the archive's member {member.name!r} is neither file, folder nor symlink")
        with suppress(FileNotFoundError):
            os.unlink(place.name, dir_fd=place.folder)
        if member.issym():
            os.symlink(member.linkname, place.name, dir_fd=place.folder)
            return
        content = archive.extractfile(member)
        assert content is not None
        with FileIO(open_at(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, member.mode & 0o777), "w") as file:
            shutil.copyfileobj(content, file, PIECE)
            os.utime(file.fileno(), (member.mtime, member.mtime))


def _pipe() -> tuple[int, int]:
    """Wide: the loop and the thread take turns in Python, and each turn should be worth it."""
    source, sink = os.pipe()
    with suppress(OSError):  # where one user's pipes may not hold more, it is an ordinary one
        fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, 4 * PIECE)
    return source, sink


async def _read_some(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, PIECE)
        except BlockingIOError:
            await readable(fd)


async def _write_some(fd: int, data: bytes) -> bool:
    """Whether somebody still reads."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            await writable(fd)
        except BrokenPipeError:
            return False
    return True
