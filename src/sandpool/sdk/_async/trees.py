"""Whole folders between here and a sandbox: one tar archive each, made and read on the way, in constant memory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from sandpool.kube.errors import Unreachable
from sandpool.sdk._async.data_plane import ANSWER, DataPlane
from sandpool.sdk.errors import FileError, RouterError
from sandpool.sdk.extraction import Extraction
from sandpool.sdk.file_errors import file_error, fits, lost
from sandpool.sdk.file_paths import RemotePath, file_url
from sandpool.sdk.local_files import LocalPath, Progress
from sandpool.sdk.tar_pieces import TreePieces
from sandpool.sdk.tar_reader import BadArchive
from sandpool.sdk.values import Transfer

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
            await answer.all(ANSWER)
    except RouterError as error:
        raise file_error(error, os.fspath(remote)) from None
    except Unreachable as error:
        raise lost(error, str(plane), os.fspath(remote)) from error
    return Transfer(tree.files, tree.size, tuple(tree.skipped))


async def download_tree(
    plane: DataPlane, remote: RemotePath, local: LocalPath, progress: Progress | None, max_bytes: int | None = None
) -> Transfer:
    done = 0

    def told(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, 0)

    try:
        async with plane.stream("GET", file_url(remote, "tar")) as answer:
            with Extraction(
                os.fspath(local), told, lambda size: fits(os.fspath(remote), size, max_bytes)
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
