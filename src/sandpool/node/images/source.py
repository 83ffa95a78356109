"""Where an image comes from: a registry or an archive. What both have in common is the way from a first manifest to its layers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandpool.node.images.image import ImageConfig
from sandpool.node.images.machine import Platform, choose, fits
from sandpool.node.images.manifest import (
    Descriptor,
    Index,
    Manifest,
    decode_config,
    decode_manifest,
    digest_of,
    refusal,
    verified,
)
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.records import LayerAccess

_DEEPEST = 4  # indexes in indexes


@dataclass(frozen=True, slots=True)
class LayerSource:
    diff_id: str
    digest: str = ""  # as it is stored; an archive of `docker save` tells none
    size: int = 0
    file: str = ""  # in an archive of `docker save`


@dataclass(frozen=True, slots=True)
class Wanted:
    """An image before its layers are there."""

    id: str
    digests: tuple[str, ...]
    layers: tuple[LayerSource, ...]
    run: ImageConfig
    lowest: int = 0  # of the layers, the first that shows; known when they are unpacked


class Source(Protocol):
    async def describe(self) -> Wanted: ...

    async def fetch(self, layer: LayerSource, target: Path, told: Callable[[int], Awaitable[object]]) -> None:
        """Writes the layer as it is stored, checked against its digest and size. `told` hears how many bytes are there."""
        ...

    async def proves(self, layer: LayerSource, access: LayerAccess) -> bool:
        """Whether a layer that is here may be used without being fetched. One that is public always may, and is not asked about."""
        ...

    def grants(self, layer: LayerSource) -> LayerAccess:
        """Who else may use a layer that was fetched or proved."""
        ...


class Contents(Protocol):
    """Small things by their digest; whoever asks compares digests."""

    def manifest(self, wanted: str, /) -> Awaitable[tuple[bytes, str]]: ...

    def config(self, digest: str, /) -> Awaitable[bytes]: ...


async def resolve(contents: Contents, first: str, size: int | None, options: ImageOptions, what: str) -> Wanted:
    """From a tag or digest to an image of this machine's platform. Everything below the first is held by a digest."""
    digests: tuple[str, ...] = ()
    wanted, promised = first, size
    for _ in range(_DEEPEST):
        own, found = await _step(contents, wanted, promised, options, what)
        digests = (*digests, own)
        if isinstance(found, Manifest):
            return await _with_config(contents, found, digests, options, what)
        wanted, promised = found.digest, found.size
    raise refusal(what, f"it has more than {_DEEPEST} indexes in each other")


async def _step(
    contents: Contents, wanted: str, promised: int | None, options: ImageOptions, what: str
) -> tuple[str, Manifest | Descriptor]:
    """The digest of a document and what to go on with. The document itself is not kept while others are fetched."""
    content, media_type = await contents.manifest(wanted)
    if wanted.startswith("sha256:"):
        verified(content, wanted, promised, f"manifest {wanted} of {what}")
    found = decode_manifest(content, media_type, options.limits, what)
    return digest_of(content), found if isinstance(found, Manifest) else chosen_manifest(found, options.platform, what)


def chosen_manifest(index: Index, platform: Platform, what: str) -> Descriptor:
    chosen = choose(index.manifests, platform)
    if chosen is None:
        there = ", ".join(sorted({str(one.platform) for one in index.manifests if one.platform})[:20]) or "none"
        raise refusal(what, f"it is not made for this machine's platform {platform}, but for {there}")
    return chosen


async def _with_config(
    contents: Contents, manifest: Manifest, digests: tuple[str, ...], options: ImageOptions, what: str
) -> Wanted:
    if manifest.config.size > options.limits.manifest:
        raise refusal(what, f"its config has {manifest.config.size} bytes, more than {options.limits.manifest}")
    content = verified(
        await contents.config(manifest.config.digest),
        manifest.config.digest,
        manifest.config.size,
        f"config of {what}",
    )
    layers = tuple(LayerSource("", layer.digest, layer.size) for layer in manifest.layers)
    return wanted_of(content, layers, digests, options, what)


def wanted_of(
    config: bytes, layers: tuple[LayerSource, ...], digests: tuple[str, ...], options: ImageOptions, what: str
) -> Wanted:
    read = decode_config(config, len(layers), f"config of {what}")
    if read.platform.architecture and not fits(read.platform, options.platform):
        raise refusal(what, f"it is made for {read.platform}, and this machine is {options.platform}")
    described = tuple(
        LayerSource(diff_id, layer.digest, layer.size, layer.file)
        for diff_id, layer in zip(read.diff_ids, layers, strict=True)
    )
    return Wanted(digest_of(config), digests, described, read.run)
