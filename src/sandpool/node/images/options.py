"""What the operator decides about images, and how much an image may cost. Every limit guards against content made to hurt."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandpool.node.images.machine import Platform, this_machine

MIB, GIB = 1 << 20, 1 << 30
LARGE = 128 << 10  # bytes; few manifests and configs have as many


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Of one image, unless it says otherwise."""

    manifest: int = 4 * MIB  # bytes of one manifest, index or config
    layers: int = 127
    compressed: int = 20 * GIB  # bytes to download
    unpacked: int = 40 * GIB  # bytes after decompression
    entries: int = 1_000_000  # files, folders and links of one layer
    path: int = 4095  # bytes of one path
    depth: int = 200  # folders above one file


@dataclass(frozen=True, slots=True)
class ImageOptions:
    allowed_folders: tuple[Path, ...] = ()  # below these, `dir:/...` may be used as a root file system
    registries: tuple[str, ...] = ("public",)  # what may be pulled from, see allowed.py; `public`: all of the internet
    insecure_registries: tuple[str, ...] = ()  # host or host:port that may be asked over plain http
    token_hosts: tuple[str, ...] = ()  # hosts beyond the registry's own domain that may see its credentials
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)  # as urllib.request.getproxies() tells them
    tls: ssl.SSLContext | None = None  # None: the machine's own trust
    platform: Platform = field(default_factory=this_machine)
    limits: ImageLimits = ImageLimits()
    unused_for: float = 14 * 24 * 3600.0  # seconds after which a pulled image that nobody uses goes
    max_bytes: int = 100 * GIB  # of all images; beyond, the longest unused goes first
    pulls: int = 16  # of all tenants at once, who share them; the operator has as many again
    downloads: int = 3  # blobs of one image at once
    unpackers: int = 3  # layers of all images at once: two of one tenant, and one that is left for another
    attempts: int = 3  # of each request that the network broke
    silence: float = 60.0  # seconds without a byte after which a connection counts as broken
    slowest: int = (
        32 << 10
    )  # bytes a second, on the average, below which a layer counts as broken; after the time of `patience`
    leave: int = 0  # bytes of the disk that pulls leave free
    patience: float = (
        120.0  # seconds for one answer to begin, with logins and redirects; and for a manifest or config to be there
    )
    large: int = 8  # manifests and configs of more than LARGE bytes at once, of all images: all of one is in memory
