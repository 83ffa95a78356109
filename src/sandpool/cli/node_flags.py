"""Flags about what runs the pods of a local cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from sandpool.cli.exits import USAGE, Exit

if TYPE_CHECKING:
    from sandpool.assembly.first_pool import FirstPools
    from sandpool.local.images.options import ImageOptions
    from sandpool.local.volumes.options import VolumeOptions

NOTICES = {
    "namespaces": "Backend namespaces: each pod runs in namespaces of its own, without capabilities.",
    "gvisor": "Backend gvisor: each pod runs on a kernel of its own, gVisor's, without capabilities.",
    "process": "Backend process: NOTHING IS ISOLATED. Pods are ordinary processes of yours; run only code that you trust.",
    "hollow": "Backend hollow: pods become Ready and have an address, but no process runs in them.",
    "none": "Backend none: objects are kept and nothing acts on them; leave out --backend none for pools and claims.",
}


NO_POOL = "none"
UNHELD = ("process", "none")
"""Backends for which there are no first pools: their template promises walls, and here nothing would be between a sandbox and the machine."""
MOST_MEMBERS = 10_000
LEAST_IO_RATE = 1 << 20


@Parameter(name="*")
@dataclass(frozen=True)
class NodeFlags:
    backend: Annotated[
        Literal["namespaces", "gvisor", "process", "hollow", "none"],
        Parameter(
            env_var="SANDPOOL_BACKEND",
            help="What pods become. namespaces: isolated processes. gvisor: on a kernel of their own, by runsc from "
            "SANDPOOL_RUNSC or PATH. process: processes WITHOUT any isolation. "
            "hollow: Ready, with an address, but no process starts. none: nothing acts on objects.",
        ),
    ] = "namespaces"
    allow_host_path: Annotated[
        tuple[Path, ...], Parameter(negative="", help="A folder of this machine that pods may mount as hostPath.")
    ] = ()
    allow_image_folder: Annotated[
        tuple[Path, ...],
        Parameter(negative="", help="A folder below which root file systems may be used as images, as dir:/PATH."),
    ] = ()
    insecure_registry: Annotated[
        tuple[str, ...],
        Parameter(
            negative="", help="HOST or HOST:PORT of a registry that may be asked without TLS. Loopback always may."
        ),
    ] = ()
    pool: Annotated[
        tuple[str, ...] | None,
        Parameter(
            negative="--no-pool",
            env_var="SANDPOOL_POOL",
            help="NAME=N: a pool of N warm sandboxes is there, or is made from the template python. May be repeated. "
            "Without it: python=3, unless there is a pool python. --no-pool, or the variable with the word none: makes none.",
        ),
    ] = None
    enforce_volume_sizes: Annotated[
        bool,
        Parameter(negative="", help="As root: volumes that name a size are file systems of that size, in a file each."),
    ] = False

    io_limit: Annotated[
        str | None,
        Parameter(
            negative="",
            help="Bytes a second, such as 50Mi, that each pod may read from, and write to, the disk of the data directory. "
            "Without it pods share the disk as its scheduler does.",
        ),
    ] = None

    def arguments(self) -> list[str]:
        """The same again, for another run of the command."""
        return [
            f"--backend={self.backend}",
            *(f"--allow-host-path={path.absolute()}" for path in self.allow_host_path),
            *(f"--allow-image-folder={path.absolute()}" for path in self.allow_image_folder),
            *(f"--insecure-registry={name}" for name in self.insecure_registry),
            *(["--enforce-volume-sizes"] if self.enforce_volume_sizes else []),
            *([f"--io-limit={self.io_limit}"] if self.io_limit is not None else []),
            *(["--no-pool"] if self.pool in ((), (NO_POOL,)) else [f"--pool={text}" for text in self.pool or ()]),
        ]

    def pools(self) -> FirstPools:
        """What the cluster begins with. Exit for a mistake."""
        from sandpool.assembly.first_pool import NO_POOLS, STANDARD, FirstPools

        if self.pool in ((), (NO_POOL,)) or (self.pool is None and self.backend in UNHELD):
            return NO_POOLS
        if self.pool is None:
            return STANDARD
        if self.backend in UNHELD:
            raise Exit(
                USAGE,
                f"--pool (or SANDPOOL_POOL) does not go with --backend {self.backend}: its template needs isolated sandboxes. Leave out one of "
                "them, or create a template and a pool of your own with kubectl",
            )
        return FirstPools(dict(_sized(text) for text in self.pool), scale=True)

    def images(self) -> ImageOptions:
        from urllib.request import getproxies

        from sandpool.local.images.options import ImageOptions

        return ImageOptions(
            allowed_folders=self.allow_image_folder, insecure_registries=self.insecure_registry, proxies=getproxies()
        )

    def volumes(self) -> VolumeOptions:
        from sandpool.local.volumes.options import VolumeOptions

        return VolumeOptions(host_paths=self.allow_host_path, images=self.enforce_volume_sizes)

    def io_rate(self) -> int | None:
        """Bytes a second. Exit for a mistake."""
        from sandpool.model.quantities import QuantityError, parse

        if self.io_limit is None:
            return None
        try:
            rate = parse(self.io_limit).value
        except QuantityError as error:
            raise Exit(USAGE, f"--io-limit {self.io_limit}: {error}; write bytes a second, such as 50Mi") from error
        if rate < LEAST_IO_RATE:
            raise Exit(
                USAGE, f"--io-limit {self.io_limit} is less than {LEAST_IO_RATE >> 20}Mi a second; no pod would start"
            )
        return rate


def _sized(text: str) -> tuple[str, int]:
    from sandpool.model.names import dns_subdomain

    name, _, number = text.partition("=")
    if not (number.isascii() and number.isdigit()) or int(number[:9]) > MOST_MEMBERS:
        raise Exit(
            USAGE, f"--pool {text}: write NAME=N, such as python=3, with a number of members from 0 to {MOST_MEMBERS}"
        )
    if wrong := dns_subdomain(name):
        raise Exit(USAGE, f"--pool {text}: {name!r} cannot be the name of a pool: {wrong[0]}")
    return name, int(number)
