"""An image in an archive as a source, and the names that an archive gives it."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from sandpool.node.images.archive import Files, pieces, read_small
from sandpool.node.images.machine import choose
from sandpool.node.images.manifest import Descriptor, Index, decode_manifest, refusal
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.records import LayerAccess
from sandpool.node.images.source import LayerSource, Wanted, resolve, wanted_of
from sandpool.node.images.uninterrupted import stoppable


class _Saved(msgspec.Struct, rename="pascal"):
    """One image of the manifest.json that `docker save` writes."""

    config: str
    layers: list[str]
    repo_tags: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """An image in an archive."""

    names: tuple[str, ...]
    root: Descriptor | _Saved


def find(files: Files, options: ImageOptions, what: str) -> tuple[Found, ...]:
    """The images in it. Of the two ways an archive can be written, the one with digests goes first."""
    most = options.limits.manifest
    if (content := read_small(files, "index.json", most, what)) is not None:
        index = decode_manifest(content, "application/vnd.oci.image.index.v1+json", options.limits, what)
        if not isinstance(index, Index):
            raise refusal(what, "its index.json is not an index")
        return _in_layout(index, options)
    if (content := read_small(files, "manifest.json", most, what)) is not None:
        try:
            saved = msgspec.json.decode(content, type=list[_Saved])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise refusal(what, f"its manifest.json is not what `docker save` writes: {error}") from error
        return tuple(Found(tuple(one.repo_tags or ()), one) for one in saved)
    raise refusal(what, "it has neither index.json (OCI layout) nor manifest.json (docker save); is it an image?")


def _in_layout(index: Index, options: ImageOptions) -> tuple[Found, ...]:
    """Entries without a name that differ in their platform are one image, as in an index."""
    unnamed = [one for one in index.manifests if not _names(one)]
    chosen = choose(unnamed, options.platform) if len(unnamed) > 1 else next(iter(unnamed), None)
    named = [one for one in index.manifests if _names(one)]
    by_digest: dict[str, tuple[Descriptor, list[str]]] = {}
    for one in named:
        by_digest.setdefault(one.digest, (one, []))[1].extend(_names(one))
    found = [Found(tuple(names), one) for one, names in by_digest.values()]
    return (*found, *((Found((), chosen),) if chosen is not None else ()))


def _names(one: Descriptor) -> tuple[str, ...]:
    """Complete names only: a bare `latest` names a tag of nobody knows what."""
    return tuple(name for name in one.names if re.search(r"[/:]", name))[:1]


class ArchiveSource:
    def __init__(self, files: Files, found: Found, options: ImageOptions, what: str) -> None:
        self._files = files
        self._root = found.root
        self._options = options
        self._what = what

    async def describe(self) -> Wanted:
        if isinstance(self._root, Descriptor):
            return await resolve(self, self._root.digest, self._root.size, self._options, self._what)
        return await asyncio.to_thread(self._describe_saved, self._root)

    def _describe_saved(self, saved: _Saved) -> Wanted:
        if len(saved.layers) > self._options.limits.layers:
            raise refusal(self._what, f"it has {len(saved.layers)} layers, more than {self._options.limits.layers}")
        config = self._small(saved.config)
        layers = tuple(LayerSource("", size=self._files.size(name) or 0, file=name) for name in saved.layers)
        return wanted_of(config, layers, (), self._options, self._what)

    async def manifest(self, wanted: str) -> tuple[bytes, str]:
        return await asyncio.to_thread(self._small, _blob(wanted)), ""

    async def config(self, digest: str) -> bytes:
        return await asyncio.to_thread(self._small, _blob(digest))

    def _small(self, name: str) -> bytes:
        content = read_small(self._files, name, self._options.limits.manifest, self._what)
        if content is None:
            raise refusal(self._what, f"{name} is missing in it")
        return content

    async def fetch(self, layer: LayerSource, target: Path, told: Callable[[int], Awaitable[object]]) -> None:
        await stoppable(partial(self._copy, layer, target))
        await told(layer.size)

    async def proves(self, layer: LayerSource, access: LayerAccess) -> bool:
        return False  # it names layers that it need not have

    def grants(self, layer: LayerSource) -> LayerAccess:
        return LayerAccess(public=True)  # the operator brought it

    def _copy(self, layer: LayerSource, target: Path, stop: threading.Event) -> None:
        name = layer.file or _blob(layer.digest)
        size = self._files.size(name)
        if size is None:
            raise refusal(self._what, f"{name} is missing in it")
        if size != layer.size:
            raise refusal(self._what, f"{name} in it has {size} bytes where {layer.size} were promised")
        summed = hashlib.sha256()
        with target.open("wb") as file:
            for piece in pieces(self._files, name, size):
                if stop.is_set():
                    return
                summed.update(piece)
                file.write(piece)
        if layer.digest and f"sha256:{summed.hexdigest()}" != layer.digest:
            raise refusal(self._what, f"{name} in it has the digest sha256:{summed.hexdigest()}")


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")
