"""Images in files: an OCI layout (a folder, or a tar of one) and what `docker save` writes, plain or compressed with gzip.

An archive is read front to back once, to learn where each file in it begins; then files are read by their place. A compressed one
is unpacked into a scratch file first, within the limits of an image. All methods of the readers block.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from sandpool.node.images import tar
from sandpool.node.images.manifest import refusal
from sandpool.node.images.streams import Measured, opened
from sandpool.node.images.tar import BadArchive, TarReader

_MOST_FILES = 20_000
_CHUNK = 1 << 20


class Files(Protocol):
    """Named files that cannot be trusted. Several threads may read at once."""

    def size(self, name: str) -> int | None:
        """None if there is none of this name."""
        ...

    def read(self, name: str, offset: int, size: int) -> bytes: ...

    def close(self) -> None: ...


class FolderFiles:
    """A layout that is a folder. Links are not followed: they could lead anywhere."""

    def __init__(self, root: Path) -> None:
        self._root = Path(os.path.realpath(root))

    def size(self, name: str) -> int | None:
        with self._opened(name) as file:
            return None if file is None else os.fstat(file).st_size

    def read(self, name: str, offset: int, size: int) -> bytes:
        with self._opened(name) as file:
            return b"" if file is None else os.pread(file, size, offset)

    @contextmanager
    def _opened(self, name: str) -> Iterator[int | None]:
        path = self._root / posixpath.normpath("/" + name)[1:]
        if os.path.realpath(path) != str(path) or not path.is_file():
            yield None
            return
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield file
        finally:
            os.close(file)

    def close(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class _Place:
    offset: int
    size: int


class TarFiles:
    """A tar archive whose content can be reached by name."""

    def __init__(self, path: Path, most: int, scratch: Path) -> None:
        self._file: IO[bytes] = path.open("rb")
        try:
            stream = opened(self._file)
            if stream is not self._file:
                self._file = _decompressed(stream, self._file, most, scratch)
            self._places = _index(self._file)
        except BaseException:
            self._file.close()
            raise

    def size(self, name: str) -> int | None:
        place = self._places.get(name)
        return None if place is None else place.size

    def read(self, name: str, offset: int, size: int) -> bytes:
        place = self._places[name]
        return os.pread(self._file.fileno(), max(0, min(size, place.size - offset)), place.offset + offset)

    def close(self) -> None:
        self._file.close()


def _decompressed(stream: tar.Readable, packed: IO[bytes], most: int, scratch: Path) -> IO[bytes]:
    plain = (scratch / "archive.tar").open("w+b")
    try:
        measured = Measured(stream, most)
        while piece := measured.read(_CHUNK):
            plain.write(piece)
        plain.flush()
    except BaseException:
        plain.close()
        raise
    packed.close()
    return plain


def _index(file: IO[bytes]) -> dict[str, _Place]:
    """Files by their names, and links within the archive as the files that they lead to. Later entries win."""
    file.seek(0)
    places: dict[str, _Place] = {}
    links: dict[str, str] = {}
    for number, entry in enumerate(TarReader(file), 1):
        if number > _MOST_FILES:
            raise BadArchive(f"it has more than {_MOST_FILES} entries")
        name = posixpath.normpath("/" + entry.path.decode(errors="replace"))[1:]
        if entry.kind == tar.FILE:
            places[name] = _Place(entry.offset, entry.size)
        elif entry.kind in (tar.SYMLINK, tar.HARD_LINK):
            base = posixpath.dirname(name) if entry.kind == tar.SYMLINK else ""
            links[name] = posixpath.normpath(posixpath.join("/", base, entry.link.decode(errors="replace")))[1:]
    for name, target in links.items():
        if target in places and name not in places:
            places[name] = places[target]
    return places


def open_files(path: Path, most: int, scratch: Path) -> Files:
    """Raises BadArchive, or OSError if the file cannot be read."""
    return FolderFiles(path) if path.is_dir() else TarFiles(path, most, scratch)


def read_small(files: Files, name: str, most: int, what: str) -> bytes | None:
    """A whole file; None if it is not there."""
    size = files.size(name)
    if size is None:
        return None
    if size > most:
        raise refusal(what, f"{name} in it has {size} bytes, more than {most}")
    return b"".join(pieces(files, name, size))


def pieces(files: Files, name: str, size: int) -> Iterator[bytes]:
    """A file of this size, as far as it is there."""
    at = 0
    while at < size and (piece := files.read(name, at, min(_CHUNK, size - at))):
        at += len(piece)
        yield piece
