"""The sources of an image, a registry or an archive, and the steps they share: from a first manifest to the image's layers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandpool.node.images.image import ImageConfig
from sandpool.node.images.manifest import (
    Descriptor,
    Index,
    Manifest,
    decode_config,
    decode_manifest,
    digest_of,
    invalid_image,
    verified,
)
from sandpool.node.images.options import ImageOptions, Platform, choose, fits
from sandpool.node.images.records import LayerAccess

_DEEPEST = 4  # indexes in indexes


@dataclass(frozen=True, slots=True)
class LayerSource:
    """A layer as a source has it."""

    diff_id: str
    digest: str = ""  # as stored; archives of `docker save` have none
    size: int = 0
    file: str = ""  # in an archive of `docker save`


@dataclass(frozen=True, slots=True)
class ResolvedImage:
    """An image whose manifest and config are known, before its layers are fetched."""

    id: str
    digests: tuple[str, ...]
    layers: tuple[LayerSource, ...]
    run: ImageConfig
    lowest: int = 0  # index of the lowest visible layer; known once they are unpacked


class Source(Protocol):
    """Where the layers of one image come from."""

    async def describe(self) -> ResolvedImage: ...

    async def fetch(self, layer: LayerSource, target: Path, report: Callable[[int], Awaitable[object]]) -> None:
        """Writes the layer as it is stored, checked against its digest and size. `report` is called with the bytes so far."""
        ...

    async def proves(self, layer: LayerSource, access: LayerAccess) -> bool:
        """Whether this source may use a layer that exists here without fetching it. Not called for public layers."""
        ...

    def grants(self, layer: LayerSource) -> LayerAccess:
        """Which other pulls may use a layer that was fetched or proved."""
        ...


class Contents(Protocol):
    """Manifests and configs by their digest; the caller compares digests."""

    def manifest(self, wanted: str, /) -> Awaitable[tuple[bytes, str]]: ...

    def config(self, digest: str, /) -> Awaitable[bytes]: ...


async def resolve(contents: Contents, first: str, size: int | None, options: ImageOptions, what: str) -> ResolvedImage:
    """Resolves a tag or digest to an image of this machine's platform. Everything below the first document is verified by digest."""
    digests: tuple[str, ...] = ()
    wanted, promised = first, size
    for _ in range(_DEEPEST):
        own, found = await _step(contents, wanted, promised, options, what)
        digests = (*digests, own)
        if isinstance(found, Manifest):
            return await _with_config(contents, found, digests, options, what)
        wanted, promised = found.digest, found.size
    raise invalid_image(what, f"it has more than {_DEEPEST} nested indexes")


async def _step(
    contents: Contents, wanted: str, promised: int | None, options: ImageOptions, what: str
) -> tuple[str, Manifest | Descriptor]:
    """Reads one document: its digest and what follows from it. The document itself is not kept while others are fetched."""
    content, media_type = await contents.manifest(wanted)
    if wanted.startswith("sha256:"):
        verified(content, wanted, promised, f"manifest {wanted} of {what}")
    found = decode_manifest(content, media_type, options.limits, what)
    return digest_of(content), found if isinstance(found, Manifest) else chosen_manifest(found, options.platform, what)


def chosen_manifest(index: Index, platform: Platform, what: str) -> Descriptor:
    chosen = choose(index.manifests, platform)
    if chosen is None:
        there = ", ".join(sorted({str(one.platform) for one in index.manifests if one.platform})[:20]) or "none"
        raise invalid_image(what, f"it is not made for this machine's platform {platform}, but for {there}")
    return chosen


async def _with_config(
    contents: Contents, manifest: Manifest, digests: tuple[str, ...], options: ImageOptions, what: str
) -> ResolvedImage:
    if manifest.config.size > options.limits.manifest:
        raise invalid_image(what, f"its config has {manifest.config.size} bytes, more than {options.limits.manifest}")
    content = verified(
        await contents.config(manifest.config.digest),
        manifest.config.digest,
        manifest.config.size,
        f"config of {what}",
    )
    layers = tuple(LayerSource("", layer.digest, layer.size) for layer in manifest.layers)
    return resolve_config(content, layers, digests, options, what)


def resolve_config(
    config: bytes, layers: tuple[LayerSource, ...], digests: tuple[str, ...], options: ImageOptions, what: str
) -> ResolvedImage:
    read = decode_config(config, len(layers), f"config of {what}")
    if read.platform.architecture and not fits(read.platform, options.platform):
        raise invalid_image(what, f"it is made for {read.platform}, and this machine is {options.platform}")
    described = tuple(
        LayerSource(diff_id, layer.digest, layer.size, layer.file)
        for diff_id, layer in zip(read.diff_ids, layers, strict=True)
    )
    return ResolvedImage(digest_of(config), digests, described, read.run)
