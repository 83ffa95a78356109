"""Importing images from files: an OCI layout (a directory, or a tar of one) and what `docker save` writes, plain or gzipped.

An archive is read front to back once to index its files; then files are read by their offset. A compressed one is unpacked into a scratch
file first, within the limits of an image. All methods of the readers block.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import posixpath
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Protocol

import msgspec

from sandpool.base.errors import NodeError
from sandpool.base.shielded import shielded, stoppable_thread
from sandpool.node.images import tar
from sandpool.node.images.directory import remove_tree
from sandpool.node.images.image import disk_full, is_disk_full, pull_error
from sandpool.node.images.manifest import Descriptor, Index, decode_manifest, invalid_image
from sandpool.node.images.options import ImageOptions, choose
from sandpool.node.images.pull import PullContext, pull, record_image
from sandpool.node.images.records import IMPORTED, LayerAccess, NameRecord
from sandpool.node.images.reference import ImageName, parse_name
from sandpool.node.images.source import LayerSource, ResolvedImage, resolve, resolve_config
from sandpool.node.images.tar import BadArchive, DigestReader, TarReader, decompressed

_MOST_FILES = 20_000
_CHUNK = 1 << 20


class ArchiveFiles(Protocol):
    """Named files that cannot be trusted. Several threads may read at once."""

    def size(self, name: str) -> int | None:
        """None if there is no file of this name."""
        ...

    def read(self, name: str, offset: int, size: int) -> bytes: ...

    def close(self) -> None: ...


class DirectoryFiles:
    """A layout that is a directory. Links are not followed: they could lead anywhere."""

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
class _Extent:
    offset: int
    size: int


class TarFiles:
    """A tar archive whose content can be reached by name."""

    def __init__(self, path: Path, most: int, scratch: Path) -> None:
        self._file: IO[bytes] = path.open("rb")
        try:
            stream = decompressed(self._file)
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
        measured = DigestReader(stream, most)
        while piece := measured.read(_CHUNK):
            plain.write(piece)
        plain.flush()
    except BaseException:
        plain.close()
        raise
    packed.close()
    return plain


def _index(file: IO[bytes]) -> dict[str, _Extent]:
    """Files by their names, and links within the archive as the files that they lead to. Later entries win."""
    file.seek(0)
    places: dict[str, _Extent] = {}
    links: dict[str, str] = {}
    for number, entry in enumerate(TarReader(file), 1):
        if number > _MOST_FILES:
            raise BadArchive(f"it has more than {_MOST_FILES} entries")
        name = posixpath.normpath("/" + entry.path.decode(errors="replace"))[1:]
        if entry.kind == tar.FILE:
            places[name] = _Extent(entry.offset, entry.size)
        elif entry.kind in (tar.SYMLINK, tar.HARD_LINK):
            base = posixpath.dirname(name) if entry.kind == tar.SYMLINK else ""
            links[name] = posixpath.normpath(posixpath.join("/", base, entry.link.decode(errors="replace")))[1:]
    for name, target in links.items():
        if target in places and name not in places:
            places[name] = places[target]
    return places


def open_files(path: Path, most: int, scratch: Path) -> ArchiveFiles:
    """Raises BadArchive, or OSError if the file cannot be read."""
    return DirectoryFiles(path) if path.is_dir() else TarFiles(path, most, scratch)


def read_small(files: ArchiveFiles, name: str, most: int, what: str) -> bytes | None:
    """A whole file; None if it is not there."""
    size = files.size(name)
    if size is None:
        return None
    if size > most:
        raise invalid_image(what, f"{name} in it has {size} bytes, more than {most}")
    return b"".join(read_pieces(files, name, size))


def read_pieces(files: ArchiveFiles, name: str, size: int) -> Iterator[bytes]:
    """Yields the file in pieces, up to this size."""
    at = 0
    while at < size and (piece := files.read(name, at, min(_CHUNK, size - at))):
        at += len(piece)
        yield piece


class _Saved(msgspec.Struct, rename="pascal"):
    """One image of the manifest.json that `docker save` writes."""

    config: str
    layers: list[str]
    repo_tags: list[str] | None = None


@dataclass(frozen=True, slots=True)
class ArchivedImage:
    """An image in an archive."""

    names: tuple[str, ...]
    root: Descriptor | _Saved


def find_images(files: ArchiveFiles, options: ImageOptions, what: str) -> tuple[ArchivedImage, ...]:
    """The images in an archive. An OCI layout, which has digests, takes precedence over manifest.json."""
    most = options.limits.manifest
    if (content := read_small(files, "index.json", most, what)) is not None:
        index = decode_manifest(content, "application/vnd.oci.image.index.v1+json", options.limits, what)
        if not isinstance(index, Index):
            raise invalid_image(what, "its index.json is not an index")
        return _in_layout(index, options)
    if (content := read_small(files, "manifest.json", most, what)) is not None:
        try:
            saved = msgspec.json.decode(content, type=list[_Saved])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise invalid_image(what, f"its manifest.json is not what `docker save` writes: {error}") from error
        return tuple(ArchivedImage(tuple(one.repo_tags or ()), one) for one in saved)
    raise invalid_image(what, "it has neither index.json (OCI layout) nor manifest.json (docker save); is it an image?")


def _in_layout(index: Index, options: ImageOptions) -> tuple[ArchivedImage, ...]:
    """Entries without a name that differ in their platform are one image, as in an index."""
    unnamed = [one for one in index.manifests if not _names(one)]
    chosen = choose(unnamed, options.platform) if len(unnamed) > 1 else next(iter(unnamed), None)
    named = [one for one in index.manifests if _names(one)]
    by_digest: dict[str, tuple[Descriptor, list[str]]] = {}
    for one in named:
        by_digest.setdefault(one.digest, (one, []))[1].extend(_names(one))
    found = [ArchivedImage(tuple(names), one) for one, names in by_digest.values()]
    return (*found, *((ArchivedImage((), chosen),) if chosen is not None else ()))


def _names(one: Descriptor) -> tuple[str, ...]:
    """Complete names only: a bare `latest` does not say which repository it belongs to."""
    return tuple(name for name in one.names if re.search(r"[/:]", name))[:1]


class ArchiveSource:
    """One image of an archive as a source for a pull. Only operators import archives, so its threads take no turns."""

    def __init__(self, files: ArchiveFiles, found: ArchivedImage, options: ImageOptions, what: str) -> None:
        self._files = files
        self._root = found.root
        self._options = options
        self._what = what

    async def describe(self) -> ResolvedImage:
        if isinstance(self._root, Descriptor):
            return await resolve(self, self._root.digest, self._root.size, self._options, self._what)
        return await asyncio.to_thread(self._describe_saved, self._root)

    def _describe_saved(self, saved: _Saved) -> ResolvedImage:
        if len(saved.layers) > self._options.limits.layers:
            raise invalid_image(
                self._what, f"it has {len(saved.layers)} layers, more than {self._options.limits.layers}"
            )
        config = self._small(saved.config)
        layers = tuple(LayerSource("", size=self._files.size(name) or 0, file=name) for name in saved.layers)
        return resolve_config(config, layers, (), self._options, self._what)

    async def manifest(self, wanted: str) -> tuple[bytes, str]:
        return await asyncio.to_thread(self._small, _blob(wanted)), ""

    async def config(self, digest: str) -> bytes:
        return await asyncio.to_thread(self._small, _blob(digest))

    def _small(self, name: str) -> bytes:
        content = read_small(self._files, name, self._options.limits.manifest, self._what)
        if content is None:
            raise invalid_image(self._what, f"{name} is missing in the archive")
        return content

    async def fetch(self, layer: LayerSource, target: Path, report: Callable[[int], Awaitable[object]]) -> None:
        await stoppable_thread(partial(self._copy, layer, target))
        await report(layer.size)

    async def proves(self, layer: LayerSource, access: LayerAccess) -> bool:
        return False  # an archive may list layers that it does not contain

    def grants(self, layer: LayerSource) -> LayerAccess:
        return LayerAccess(public=True)  # imported by the operator

    def _copy(self, layer: LayerSource, target: Path, stop: threading.Event) -> None:
        name = layer.file or _blob(layer.digest)
        size = self._files.size(name)
        if size is None:
            raise invalid_image(self._what, f"{name} is missing in the archive")
        if size != layer.size:
            raise invalid_image(self._what, f"{name} in it has {size} bytes, but its descriptor says {layer.size}")
        summed = hashlib.sha256()
        with target.open("wb") as file:
            for piece in read_pieces(self._files, name, size):
                if stop.is_set():
                    return
                summed.update(piece)
                file.write(piece)
        if layer.digest and f"sha256:{summed.hexdigest()}" != layer.digest:
            raise invalid_image(self._what, f"{name} in it has the digest sha256:{summed.hexdigest()}")


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


async def import_archive(
    context: PullContext, path: Path, name: ImageName | None, on_progress: Callable[[str], object]
) -> tuple[NameRecord, ...]:
    """Imports all images of an archive, or none of them. Raises NodeError."""
    scratch = context.directory.fresh()
    holds: list[str] = []
    try:
        files = await shielded(context.in_thread(_open, context, path, scratch))
        try:
            found = await context.in_thread(find_images, files, context.options, str(path))
            plan = assign_names(found, name, str(path))
            return await _import_all(context, files, plan, path, holds, on_progress)
        finally:
            files.close()
    finally:
        for hold in holds:
            context.directory.release(hold)
        await shielded(context.in_thread(remove_tree, scratch))


async def _import_all(
    context: PullContext,
    files: ArchiveFiles,
    plan: tuple[tuple[ArchivedImage, tuple[ImageName, ...]], ...],
    path: Path,
    holds: list[str],
    on_progress: Callable[[str], object],
) -> tuple[NameRecord, ...]:
    """Each hold added to `holds` keeps the layers of one image until all images are imported."""
    there = []
    for found, names in plan:
        source = ArchiveSource(files, found, context.options, str(path))
        holds.append(f"import {os.urandom(8).hex()}")
        there.append((await pull(context, source, str(path), holds[-1], on_progress), names))
    at = context.clock.now().timestamp()
    written: list[NameRecord] = []
    for wanted, names in there:
        records = tuple(
            NameRecord(reference=str(name), id=wanted.id, digests=wanted.digests, at=at, origin=IMPORTED)
            for name in names
        )
        await record_image(context, wanted, records)
        written += records
    return tuple(written)


def assign_names(
    found: tuple[ArchivedImage, ...], name: ImageName | None, what: str
) -> tuple[tuple[ArchivedImage, tuple[ImageName, ...]], ...]:
    """Which image gets which names. Pure."""
    if not found:
        raise invalid_image(what, "it contains no image")
    if name is not None:
        if len(found) > 1:
            raise invalid_image(
                what, f"{len(found)} images are in it, and one name cannot stand for all; leave the name out"
            )
        return ((found[0], (name,)),)
    plan = tuple((one, tuple(map(parse_name, one.names))) for one in found)
    if not all(names for _, names in plan):
        raise NodeError("InvalidImageName", f"{what} does not name its image; give a name after it")
    return plan


def _open(context: PullContext, path: Path, scratch: Path) -> ArchiveFiles:
    try:
        return open_files(path, context.options.limits.unpacked, scratch)
    except BadArchive as error:
        raise invalid_image(str(path), str(error)) from error
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(str(path), context.directory.root) from error
        raise pull_error(str(path), error.strerror or os.strerror(error.errno or 0)) from error
