"""Reads, writes and transfers files and directory trees of a sandbox.

A tree is sent as one tar archive, which is built and unpacked on the way, in constant memory.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, BinaryIO, cast

from sandpool.kube.errors import Unreachable
from sandpool.sdk._async.data_plane import ANSWER as ANSWER_BYTES
from sandpool.sdk._async.data_plane import DataPlane
from sandpool.sdk._async.file_watch import AsyncWatch
from sandpool.sdk._async.http import LARGEST, Answer, Headers, Response
from sandpool.sdk._async.sources import Source, pieces_of, plain
from sandpool.sdk.answers import read_object, understood
from sandpool.sdk.archives import Extraction, TreePieces
from sandpool.sdk.errors import FileError, FileNotFound, PastTheEnd, RouterError
from sandpool.sdk.local_files import LocalPath, Progress, is_directory, measured, opened, putting
from sandpool.sdk.remote_files import RemotePath, file_error, file_url, fits, joined, lost, octal
from sandpool.sdk.values import DEFAULT_MAX_BYTES, FileInfo, Transfer
from sandpool.wire.tar import BadArchive

PIECE = 256 * 1024
ANSWER_TIMEOUT = 60.0
"""Seconds for a request that moves no contents."""


class AsyncFileReader:
    """A file in the sandbox that is read as a stream."""

    def __init__(self, answer: Answer, path: str) -> None:
        self.path = path
        self.size = int(answer.header("content-length") or 0)
        """Size of the part that will be read, in bytes."""
        self._answer = answer

    async def read(self, limit: int = PIECE) -> bytes:
        """Up to `limit` bytes, as soon as there are any; empty at the end."""
        return await self._answer.read(limit)

    async def all(self, max_bytes: int | None = DEFAULT_MAX_BYTES) -> bytes:
        """Reads the rest. Raises FileTooLarge if it is more than `max_bytes` (None: no limit), before reading if the size is known."""
        found = bytearray()
        fits(self.path, self.size, max_bytes)
        while data := await self.read():
            fits(self.path, len(found) + len(data), max_bytes)
            found += data
        return bytes(found)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data


class AsyncFiles:
    """Files and directories of a sandbox: `box.files`. Relative paths begin at the sandbox's home.

    Errors are FileNotFound, FileExists, FileDenied, NoSpace or another FileError, each with its `path`.
    """

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    # Contents

    async def read(
        self,
        path: RemotePath,
        *,
        offset: int = 0,
        length: int | None = None,
        max_bytes: int | None = DEFAULT_MAX_BYTES,
    ) -> bytes:
        """Reads a whole file, or `length` bytes from `offset` on (fewer if it ends before).

        Raises FileTooLarge for a file larger than `max_bytes` (None: no limit); with a `length`, that is the limit. `open`, `read_into`
        and `download` take files of any size in constant memory.
        """
        if length == 0:
            await self.stat(path)
            return b""
        try:
            async with self.open(path, offset=offset, length=length) as file:
                return await file.all(max_bytes if length is None else length)
        except PastTheEnd:
            return b""

    async def read_text(
        self,
        path: RemotePath,
        encoding: str = "utf-8",
        errors: str = "strict",
        *,
        max_bytes: int | None = DEFAULT_MAX_BYTES,
    ) -> str:
        """Reads a file as text, of at most `max_bytes` as for `read`. `errors="replace"` never fails to decode."""
        return (await self.read(path, max_bytes=max_bytes)).decode(encoding, errors)

    async def read_into(self, path: RemotePath, file: IO[bytes], *, max_bytes: int | None = None) -> int:
        """Copies a file of any size into a local file that is open for writing. Returns its size.

        With `max_bytes`, raises FileTooLarge if it has more; no more than that is ever written.
        """
        size = 0
        async with self.open(path) as source:
            fits(source.path, source.size, max_bytes)
            async for data in source:
                size += len(data)
                fits(source.path, size, max_bytes)
                file.write(data)
        return size

    @asynccontextmanager
    async def open(
        self, path: RemotePath, *, offset: int = 0, length: int | None = None
    ) -> AsyncIterator[AsyncFileReader]:
        """Reads a file of any size piece by piece: `async with box.files.open("big.bin") as file: ...`."""
        if offset < 0 or (length is not None and length <= 0):
            raise ValueError("offset must not be negative, and length must be above 0")
        headers = [("Range", f"bytes={offset}-{'' if length is None else offset + length - 1}")]
        whole = offset == 0 and length is None
        async with self._streamed("GET", file_url(path), path, [] if whole else headers) as answer:
            yield AsyncFileReader(answer, os.fspath(path))

    async def write(self, path: RemotePath, data: Source, *, mode: int | None = None) -> None:
        """Writes a file, whole or not at all; missing directories are created.

        `data` is bytes, text (as UTF-8), a file open for reading (from its position on), or an iterator of bytes, of any size: it is
        never held in memory as a whole. Without a `mode` an existing file keeps its own.
        """
        url = file_url(path, mode=octal(mode))
        whole = plain(data)
        if whole is not None:
            await self._asked("PUT", url, path, whole, timeout=None)
        elif hasattr(data, "read") and not hasattr(data, "encoding"):  # a file that gives bytes
            await self._sent(url, path, cast("BinaryIO", data))
        else:
            await self._sent(url, path, pieces_of(data, PIECE))

    # Names

    async def list(self, path: RemotePath = ".") -> list[FileInfo]:
        """Lists the entries of a directory by name; at most the first 100,000."""
        answer = await self._asked("GET", file_url(path, "list"), path, limit=LARGEST)
        entries = read_object(answer.body).get("entries", [])
        with understood():
            return [FileInfo.of(entry, joined(path, str(entry["name"]))) for entry in entries]

    async def stat(self, path: RemotePath, *, follow: bool = True) -> FileInfo:
        """Describes the file at a path; without `follow`, a symlink itself."""
        url = file_url(path, "stat") if follow else file_url(path, "stat", "nofollow")
        return FileInfo.of(read_object((await self._asked("GET", url, path)).body), os.fspath(path))

    async def exists(self, path: RemotePath) -> bool:
        """Whether the path exists; a dangling symlink does not."""
        try:
            await self.stat(path)
        except FileNotFound:
            return False
        return True

    async def mkdir(self, path: RemotePath, *, parents: bool = True, mode: int | None = None) -> None:
        """Creates a directory. With `parents`, creates missing parents and accepts an existing directory."""
        flags = ["mkdir", "parents"] if parents else ["mkdir"]
        await self._asked("POST", file_url(path, *flags, mode=octal(mode)), path)

    async def move(self, path: RemotePath, target: RemotePath) -> None:
        """Renames a file or directory, replacing a file of that name. A symlink itself is moved."""
        await self._asked("POST", file_url(path, move=os.fspath(target)), path)

    async def remove(self, path: RemotePath, *, recursive: bool = False) -> None:
        """Removes a file or an empty directory; with `recursive`, a directory and everything in it. A symlink itself is removed."""
        await self._asked("DELETE", file_url(path, *(["recursive"] if recursive else [])), path, timeout=None)

    # Between here and there

    async def upload(self, local: LocalPath, remote: RemotePath, *, progress: Progress | None = None) -> Transfer:
        """Copies a local file to `remote`, or the contents of a local directory into the directory `remote`, over what is there.

        Modes, symlinks and times are kept. `progress(done, total)` is called on the way, in bytes. Sockets and the like are skipped
        and listed in the result.
        """
        if is_directory(local):
            return await upload_tree(self._plane, local, remote, progress)
        with opened(local) as file:
            found = os.fstat(file.fileno())
            url = file_url(remote, mode=octal(found.st_mode & 0o777))
            await self._sent(url, remote, file if progress is None else measured(file, found.st_size, progress))
        return Transfer(1, found.st_size)

    async def download(
        self,
        remote: RemotePath,
        local: LocalPath,
        *,
        progress: Progress | None = None,
        max_bytes: int | None = None,
    ) -> Transfer:
        """Copies a file to `local`, or the contents of a directory into the local directory `local`, over what is there.

        Nothing is written outside of `local`, whatever the sandbox sends: symlinks that would lead out are skipped and listed in the
        result. `progress(done, total)` is called on the way, in bytes; the total of a directory is not known (0). A file appears whole
        or not at all. With `max_bytes`, raises FileTooLarge if there is more, and no more than that is written: a sandbox may send
        without end.
        """
        info = await self.stat(remote)
        if info.is_dir:
            return await download_tree(self._plane, remote, local, progress, max_bytes)
        done = 0
        if is_directory(local):
            raise IsADirectoryError(
                f"{os.fspath(local)!r} is a directory; name the file in it that {info.path!r} is copied to"
            )
        with putting(local, info.mode & 0o777) as file:
            async with self.open(remote) as source:
                fits(source.path, source.size, max_bytes)
                async for data in source:
                    done += len(data)
                    fits(source.path, done, max_bytes)
                    file.write(data)
                    if progress is not None:
                        progress(done, source.size)
        return Transfer(1, done)

    def watch(self, path: RemotePath = ".", *, recursive: bool = False) -> AsyncWatch:
        """Watches a directory for changes: `async for change in box.files.watch("src")`.

        It watches from the first step of the iteration, or from the `async with` around it on; `close` or leaving ends it. With
        `recursive`, directories below are watched too, also those that appear later.
        """
        url = file_url(path, "watch", *(["recursive"] if recursive else []))
        return AsyncWatch(self._plane, url, os.fspath(path))

    # Requests

    async def _asked(
        self,
        method: str,
        url: str,
        path: RemotePath,
        body: bytes = b"",
        timeout: float | None = ANSWER_TIMEOUT,
        limit: int = ANSWER_BYTES,
    ) -> Response:
        try:
            return await self._plane.request(method, url, body=body, timeout=timeout, limit=limit)
        except RouterError as error:
            raise file_error(error, os.fspath(path)) from None
        except Unreachable as error:
            raise lost(error, str(self._plane), os.fspath(path)) from error

    async def _sent(self, url: str, path: RemotePath, body: BinaryIO | AsyncIterator[bytes]) -> None:
        async with self._streamed("PUT", url, path, body=body) as answer:
            await answer.all(ANSWER_BYTES)

    @asynccontextmanager
    async def _streamed(
        self,
        method: str,
        url: str,
        path: RemotePath,
        headers: Headers = (),
        body: bytes | BinaryIO | AsyncIterator[bytes] = b"",
    ) -> AsyncIterator[Answer]:
        try:
            async with self._plane.stream(
                method, url, headers, body, timeout=None if body else ANSWER_TIMEOUT
            ) as answer:
                yield answer
        except RouterError as error:
            raise file_error(error, os.fspath(path)) from None
        except Unreachable as error:
            raise lost(error, str(self._plane), os.fspath(path)) from error


TAR = (("Content-Type", "application/x-tar"),)


async def upload_tree(plane: DataPlane, local: LocalPath, remote: RemotePath, progress: Progress | None) -> Transfer:
    tree = TreePieces(os.fspath(local))
    total = tree.measure() if progress is not None else 0

    async def pieces() -> AsyncIterator[bytes]:
        for piece in tree:
            yield piece
            if progress is not None:
                progress(tree.size, total)

    try:
        async with plane.stream("PUT", file_url(remote, "tar"), TAR, pieces()) as answer:
            await answer.all(ANSWER_BYTES)
    except RouterError as error:
        raise file_error(error, os.fspath(remote)) from None
    except Unreachable as error:
        raise lost(error, str(plane), os.fspath(remote)) from error
    return Transfer(tree.files, tree.size, tuple(tree.skipped))


async def download_tree(
    plane: DataPlane, remote: RemotePath, local: LocalPath, progress: Progress | None, max_bytes: int | None = None
) -> Transfer:
    done = 0

    def report(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, 0)

    try:
        async with plane.stream("GET", file_url(remote, "tar")) as answer:
            with Extraction(
                os.fspath(local), report, lambda size: fits(os.fspath(remote), size, max_bytes)
            ) as extraction:
                async for data in answer:
                    extraction.feed(data)
                extraction.finish()
    except RouterError as error:
        raise file_error(error, os.fspath(remote)) from None
    except Unreachable as error:
        raise lost(error, str(plane), os.fspath(remote)) from error
    except BadArchive as error:
        where = f"{plane}: {os.fspath(remote)!r} to {os.fspath(local)!r}"
        raise FileError(f"{where}: {error}", os.fspath(remote)) from None
    return Transfer(extraction.files, extraction.size, tuple(extraction.skipped))
