"""Manifests, indexes and configs of images, from bytes to checked values. Pure.

Reads OCI image-spec 1.x and Docker's schema 2. Anything invalid is a NodeError that names the field; the bytes have been compared with
their digest before. Only known fields are decoded: a hostile document of four megabytes could become hundreds as Python objects.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from sandpool.base.errors import NodeError
from sandpool.node.images.image import ImageConfig
from sandpool.node.images.options import ImageLimits, Platform

OCI, DOCKER = "application/vnd.oci.image.", "application/vnd.docker."
MANIFESTS = (f"{OCI}manifest.v1+json", f"{DOCKER}distribution.manifest.v2+json")
INDEXES = (f"{OCI}index.v1+json", f"{DOCKER}distribution.manifest.list.v2+json")
ACCEPT = ", ".join((*MANIFESTS, *INDEXES))
_CONFIGS = (f"{OCI}config.v1+json", f"{DOCKER}container.image.v1+json", "application/octet-stream")
_LAYERS = re.compile(
    r"application/vnd\.(oci\.image\.layer\.v1\.tar(\+gzip|\+zstd)?|docker\.image\.rootfs\.diff\.tar(\.gzip|\.zstd)?)"
)
T = TypeVar("T")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_MOST = 10_000  # manifests in an index, strings in a config
_LONGEST = 1000  # characters of an error message


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A reference to a blob or manifest, by its digest."""

    media_type: str
    digest: str
    size: int
    platform: Platform | None = None
    names: tuple[str, ...] = ()  # from its annotations, the most complete first


@dataclass(frozen=True, slots=True)
class Manifest:
    """The config and layers of one image."""

    config: Descriptor
    layers: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """Manifests of one image for several platforms."""

    manifests: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class Config:
    """What an image's config says: its layers, its platform, and how to run it."""

    diff_ids: tuple[str, ...]
    platform: Platform
    run: ImageConfig


class _Platform(msgspec.Struct):
    os: str = ""
    architecture: str = ""
    variant: str = ""


class _Annotations(msgspec.Struct):
    image: str = msgspec.field(default="", name="io.containerd.image.name")
    ref: str = msgspec.field(default="", name="org.opencontainers.image.ref.name")


class _Descriptor(msgspec.Struct, rename="camel"):
    digest: str
    size: int
    media_type: str = ""
    platform: _Platform | None = None
    annotations: _Annotations | None = None


class _Said(msgspec.Struct, rename="camel"):
    """The fields that tell what kind of document it is."""

    media_type: str | None = None
    schema_version: int | None = None
    manifests: msgspec.Raw = msgspec.Raw()


class _Manifest(msgspec.Struct, rename="camel"):
    schema_version: int
    config: _Descriptor
    layers: list[_Descriptor] = []


class _Index(msgspec.Struct, rename="camel"):
    schema_version: int
    manifests: list[_Descriptor]


class _Run(msgspec.Struct, rename="pascal"):
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    env: list[str] | None = None
    working_dir: str | None = None
    user: str | None = None
    stop_signal: str | None = None


class _RootFs(msgspec.Struct):
    diff_ids: list[str] | None = None


class _Config(msgspec.Struct):
    rootfs: _RootFs
    config: _Run | None = None
    os: str = ""
    architecture: str = ""
    variant: str = ""


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def well_formed(digest: str) -> bool:
    return _DIGEST.fullmatch(digest) is not None


def invalid_image(what: str, why: str) -> NodeError:
    """`why` may quote content of the image: it is shortened, and control characters are removed."""
    shown = "".join(each if each.isprintable() else "?" for each in why[:_LONGEST])
    return NodeError("ErrImagePull", f"{what} cannot be used: {shown}")


def verified(content: bytes, digest: str, size: int | None, what: str) -> bytes:
    """The content, if size and digest match the descriptor."""
    if size is not None and len(content) != size:
        raise invalid_image(what, f"it has {len(content)} bytes, but its descriptor says {size}")
    if digest_of(content) != digest:
        raise invalid_image(what, f"its digest is {digest_of(content)} but its descriptor says {digest}")
    return content


def decode_manifest(content: bytes, media_type: str, limits: ImageLimits, what: str) -> Manifest | Index:
    """Decodes by the media type; if that is missing or generic, by the document's own fields."""
    document = _typed(content, _Said, what)
    said = document.media_type or media_type
    if said in INDEXES or (said not in MANIFESTS and document.manifests != msgspec.Raw()):
        index = _typed(content, _Index, what)
        if len(index.manifests) > _MOST:
            raise invalid_image(what, f"it names {len(index.manifests)} manifests, more than {_MOST}")
        return Index(tuple(_descriptor(one, f"{what} manifests", manifest=True) for one in index.manifests))
    if document.schema_version == 1:
        raise invalid_image(
            what, "it is of Docker's schema 1, which is no longer in use; push it again with a newer tool"
        )
    manifest = _typed(content, _Manifest, what)
    if len(manifest.layers) > limits.layers:
        raise invalid_image(what, f"it has {len(manifest.layers)} layers, more than {limits.layers}")
    config = _descriptor(manifest.config, f"{what} config")
    if config.media_type and config.media_type not in _CONFIGS:
        raise invalid_image(what, f"it is not a container image: its config is of type {config.media_type[:100]!r}")
    layers = tuple(_layer(one, f"{what} layer {number}") for number, one in enumerate(manifest.layers, 1))
    if sum(layer.size for layer in layers) > limits.compressed:
        raise invalid_image(what, f"its layers have more than {limits.compressed} bytes")
    return Manifest(config, layers)


def decode_config(content: bytes, layers: int, what: str) -> Config:
    config = _typed(content, _Config, what)
    diff_ids = tuple(config.rootfs.diff_ids or ())
    if len(diff_ids) != layers:
        raise invalid_image(what, f"rootfs.diff_ids names {len(diff_ids)} layers, its manifest {layers}")
    for diff_id in diff_ids:
        if not well_formed(diff_id):
            raise invalid_image(what, f"rootfs.diff_ids has {diff_id[:80]!r}, which is not a sha256 digest")
    platform = Platform(config.os or "linux", config.architecture, config.variant)
    return Config(diff_ids, platform, _run(config.config or _Run(), what))


def _run(run: _Run, what: str) -> ImageConfig:
    for field, listed in (("Entrypoint", run.entrypoint), ("Cmd", run.cmd), ("Env", run.env)):
        if len(listed or ()) > _MOST:
            raise invalid_image(what, f"config.{field} has {len(listed or ())} strings, more than {_MOST}")
    env = {}
    for pair in run.env or ():
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise invalid_image(what, f"config.Env has {pair[:80]!r}, which is not NAME=value")
        env[name] = value
    words = (*(run.entrypoint or ()), *(run.cmd or ()), *env, *env.values(), run.working_dir or "", run.user or "")
    if any("\0" in word for word in words):
        raise invalid_image(what, "its config has a string with a NUL byte")
    return ImageConfig(
        tuple(run.entrypoint or ()),
        tuple(run.cmd or ()),
        env,
        run.working_dir or "",
        run.user or "",
        run.stop_signal or "",
    )


def _layer(one: _Descriptor, what: str) -> Descriptor:
    if one.media_type and not _LAYERS.fullmatch(one.media_type):
        raise invalid_image(what, f"type {one.media_type[:100]!r} is not one that can be unpacked")
    return _descriptor(one, what)


def _descriptor(one: _Descriptor, what: str, *, manifest: bool = False) -> Descriptor:
    if not well_formed(one.digest):
        raise invalid_image(what, f"{one.digest[:80]!r} is not a sha256 digest")
    if one.size < 0:
        raise invalid_image(what, f"its size is {one.size}")
    platform = None
    if one.platform is not None and (one.platform.os or one.platform.architecture):
        platform = Platform(one.platform.os, one.platform.architecture, one.platform.variant)
    names = _names(one.annotations) if manifest and one.annotations is not None else ()
    return Descriptor(one.media_type, one.digest, one.size, platform, names)


def _names(annotations: _Annotations) -> tuple[str, ...]:
    return tuple(name for name in (annotations.image, annotations.ref) if name)


def _typed(content: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        object_ = content[:100].lstrip()[:1] == b"{"
        raise invalid_image(what, str(error) if object_ else "it is not a JSON object") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid_image(what, "it is not JSON") from error
