"""What the operator configures about images, how much an image may cost, and which platform this machine runs.

Every limit guards against content made to do harm.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

_NAMES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i686": "386",
    "loongarch64": "loong64",
}
_VARIANTS = {"armv7l": "v7", "armv6l": "v6"}


@dataclass(frozen=True, slots=True)
class Platform:
    """Operating system, architecture and variant, as OCI names them."""

    os: str = "linux"
    architecture: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


def this_machine() -> Platform:
    machine = os.uname().machine
    return Platform("linux", _NAMES.get(machine, machine), _VARIANTS.get(machine, ""))


class Offered(Protocol):
    """Something built for one platform, or for any."""

    @property
    def platform(self) -> Platform | None: ...


T = TypeVar("T", bound=Offered)


def choose(offered: Sequence[T], wanted: Platform) -> T | None:
    """The first that names exactly this platform, else the first that would run on it. One that names none comes last."""
    fitting = [one for one in offered if one.platform is None or fits(one.platform, wanted)]
    return min(fitting, key=lambda one: _distance(one.platform, wanted), default=None)


def fits(offered: Platform, wanted: Platform) -> bool:
    if (offered.os, offered.architecture) != (wanted.os, wanted.architecture):
        return False
    if wanted.architecture != "arm":
        return True  # variants rarely matter (arm64/v8, amd64/v2); `choose` prefers the exact one
    return (offered.variant or "v7") <= (wanted.variant or "v7")


def _distance(offered: Platform | None, wanted: Platform) -> int:
    if offered is None:
        return 9
    if offered.variant == wanted.variant:
        return 0
    if wanted.architecture == "arm":
        return 1 if offered.variant == "v6" else 2
    return {"": 1, "v8": 2, "v1": 2}.get(offered.variant, 3)  # amd64/v3 may need instructions that this machine lacks


MIB, GIB = 1 << 20, 1 << 30
LARGE = 128 << 10  # bytes; few manifests and configs are larger


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Limits of one image, unless the comment says otherwise."""

    manifest: int = 4 * MIB  # bytes of one manifest, index or config
    layers: int = 127
    compressed: int = 20 * GIB  # bytes to download
    unpacked: int = 40 * GIB  # bytes after decompression
    entries: int = 1_000_000  # files, directories and links of one layer
    path: int = 4095  # bytes of one path
    depth: int = 200  # directories above one file


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """The operator's settings. Times are seconds, sizes bytes."""

    allowed_directories: tuple[Path, ...] = ()  # below these, `dir:/...` may be used as a root file system
    registries: tuple[str, ...] = (
        "public",
    )  # what may be pulled from, see registry_policy.py; `public`: all of the internet
    insecure_registries: tuple[str, ...] = ()  # host or host:port that may be used over plain HTTP
    token_hosts: tuple[str, ...] = ()  # hosts beyond the registry's own domain that may see its credentials
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)  # as urllib.request.getproxies() returns them
    tls: ssl.SSLContext | None = None  # None: the machine's own trust
    platform: Platform = field(default_factory=this_machine)
    limits: ImageLimits = ImageLimits()
    unused_for: float = 14 * 24 * 3600.0  # seconds after which an unused pulled image is removed
    max_bytes: int = 100 * GIB  # of all images; above it, the longest unused are removed first
    pulls: int = 16  # concurrent, shared by all tenants; the operator has as many again
    downloads: int = 3  # concurrent blobs of one image
    unpackers: int = 3  # concurrent layers of all images: one tenant gets two, and one is left for others
    attempts: int = 3  # for each request that failed because of the network
    silence: float = 60.0  # seconds without a byte after which a connection counts as broken
    slowest: int = (
        32 << 10
    )  # bytes a second, on the average, below which a layer counts as broken; after the time of `patience`
    leave: int = 0  # bytes of disk space that pulls leave free
    patience: float = (
        120.0  # seconds for one answer to begin, with logins and redirects; and for a manifest or config to be there
    )
    large: int = 8  # manifests and configs of more than LARGE bytes at once, of all images: all of one is in memory
