"""Flags about what runs the pods of a local cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from sandpool.cli.exits import USAGE, Exit

if TYPE_CHECKING:
    from sandpool.app.local_node import RuntimeName
    from sandpool.install.first_pool import FirstPools
    from sandpool.node.images.options import ImageOptions
    from sandpool.node.network.ceiling import Ceiling
    from sandpool.node.volumes.options import VolumeOptions

NOTICES = {
    "namespaces": "Backend namespaces: each pod runs in namespaces of its own, without capabilities.",
    "gvisor": "Backend gvisor: each pod runs on a kernel of its own, gVisor's, without capabilities.",
    "process": "Backend process: NOTHING IS ISOLATED. Pods are ordinary processes of yours; run only code that you trust.",
    "hollow": "Backend hollow: pods become Ready and have an address, but no process runs in them.",
    "none": "Backend none: objects are kept and nothing acts on them; leave out --backend none for pools and claims.",
}

UNHELD_LIMITS = {"cpu": "CPU", "memory": "memory", "pids": "processes", "storage": "disk space", "io": "disk bandwidth"}
DELEGATE = "systemd-run --user --scope -p Delegate=yes sandpool up"


def unheld_notice(backend: str, unheld: Sequence[str]) -> tuple[str, ...]:
    """What to tell about limits that this machine does not hold, in lines; of the backend process its own notice says all."""
    if not unheld or backend == "process":
        return ()
    named = [UNHELD_LIMITS.get(name, name) for name in unheld]
    listed = " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    alone = " Memory is limited for each process alone." if backend == "namespaces" and "memory" in unheld else ""
    told = f"NOT HELD on this machine: limits of {listed}. A sandbox can take more than its template says.{alone}"
    if not {"cpu", "memory"} & {*unheld}:
        return (told,)
    return (told, f"  To have them held, run it as root, or with control groups of its own: {DELEGATE}")


NO_POOL = "none"
UNHELD = ("process", "none")
"""Backends for which there are no first pools: their template promises walls, and here nothing would be between a sandbox and the machine."""
MOST_MEMBERS = 10_000
LEAST_RESERVE, MOST_RESERVE = 16 << 20, 64 << 30
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
    registry: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="HOST, HOST:PORT or HOST:*, with /PATH or without: a registry that images may be pulled from. May be repeated. The word "
            "public stands for every registry at a public address with TLS, and is the default. This machine's own addresses are reached "
            "only where they are listed with a port, such as localhost:5000.",
        ),
    ] = ("public",)
    insecure_registry: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="HOST or HOST:PORT of a registry that images may be pulled from, and without TLS. What is listed with --registry on "
            "loopback needs no TLS either.",
        ),
    ] = ()
    allow_runtime: Annotated[
        tuple[Literal["namespaces", "gvisor"], ...],
        Parameter(
            negative="",
            help="A runtime that pods may choose by runtimeClassName beside --backend. May be repeated. Without it: none.",
        ),
    ] = ()
    allow_egress: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="CIDR or CIDR:PORTS, such as 203.0.113.0/24:443,8000-8999: what NetworkPolicies may let sandboxes reach at most. May be "
            "repeated. Without it policies alone decide; the word none: nothing can be reached.",
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
    disk_reserve: Annotated[
        str,
        Parameter(
            show_default=False,
            env_var="SANDPOOL_DISK_RESERVE",
            help="Room kept back on the disk of the data directory, such as 512Mi: deletes and status are stored even when "
            "sandboxes have filled it. 0 keeps none. Default: 1 % of the disk, from 64Mi to 256Mi.",
        ),
    ] = ""

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
            *(f"--registry={name}" for name in self.registry),
            *(f"--insecure-registry={name}" for name in self.insecure_registry),
            *(f"--allow-runtime={name}" for name in self.allow_runtime),
            *(f"--allow-egress={text}" for text in self.allow_egress),
            *(["--enforce-volume-sizes"] if self.enforce_volume_sizes else []),
            *([f"--disk-reserve={self.disk_reserve}"] if self.disk_reserve else []),
            *([f"--io-limit={self.io_limit}"] if self.io_limit is not None else []),
            *(["--no-pool"] if self.pool in ((), (NO_POOL,)) else [f"--pool={text}" for text in self.pool or ()]),
        ]

    def check(self, data: Path) -> None:
        """Exit if pods could change what the machine trusts: they may put links, or anything, where they may write."""
        trusted = {"the data directory": data} | {
            f"--allow-image-folder {path}": path for path in self.allow_image_folder
        }
        for host in self.allow_host_path:
            for what, path in trusted.items():
                if _lies_in(path, host) or (path == data and _lies_in(host, path)):
                    raise Exit(
                        USAGE,
                        f"--allow-host-path {host} holds, or lies in, {what}: a pod that mounts it could change what others rely on. "
                        "Allow a folder apart from it",
                    )

    def settings(self) -> dict[str, Any]:
        """What a local cluster is told about its node, by the names of its options. Exit for a mistake."""
        return {
            "backend": self.backend,
            "images": self.images(),
            "volumes": self.volumes(),
            "runtimes": self.runtimes(),
            "ceiling": self.ceiling(),
            "io_rate": self.io_rate(),
            "disk_reserve": self.reserve(),
            "pools": self.pools(),
        }

    def pools(self) -> FirstPools:
        """What the cluster begins with. Exit for a mistake."""
        from sandpool.install.first_pool import NO_POOLS, STANDARD, FirstPools

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

    def runtimes(self) -> tuple[RuntimeName, ...]:
        """What pods may choose beside the backend. Exit for a mistake."""
        if self.allow_runtime and self.backend in ("hollow", "none"):
            raise Exit(
                USAGE, f"--allow-runtime does not go with --backend {self.backend}, which runs nothing: leave it out"
            )
        return self.allow_runtime

    def ceiling(self) -> Ceiling:
        """What NetworkPolicies may open at most. Exit for a mistake."""
        from sandpool.node.network.ceiling import CeilingError, ceiling_of

        if self.allow_egress and self.backend == "process":
            raise Exit(
                USAGE,
                "--allow-egress does not go with --backend process: its pods have the network of this machine. Leave out one of them",
            )
        try:
            return ceiling_of(self.allow_egress)
        except CeilingError as error:
            raise Exit(USAGE, f"--allow-egress {error}") from error

    def reserve(self) -> int | None:
        """Bytes; None if nothing was said. Exit for a mistake."""
        from sandpool.model.quantities import QuantityError, parse

        if not self.disk_reserve:
            return None
        try:
            size = parse(self.disk_reserve).value
        except QuantityError as error:
            raise Exit(USAGE, f"--disk-reserve {self.disk_reserve}: {error}; write bytes, such as 512Mi") from error
        if not 0 <= size <= MOST_RESERVE or 0 < size < LEAST_RESERVE:
            raise Exit(USAGE, f"--disk-reserve {self.disk_reserve}: choose 0, or a size from 16Mi to 64Gi")
        return size

    def images(self) -> ImageOptions:
        from urllib.request import getproxies

        from sandpool.node.images.options import ImageOptions

        check_registries(self.registry, self.insecure_registry)
        return ImageOptions(
            allowed_folders=self.allow_image_folder,
            registries=self.registry,
            insecure_registries=self.insecure_registry,
            proxies=getproxies(),
        )

    def volumes(self) -> VolumeOptions:
        from sandpool.node.volumes.options import VolumeOptions

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


def _lies_in(path: Path, folder: Path) -> bool:
    return path.absolute().is_relative_to(folder.absolute()) or path.resolve().is_relative_to(folder.resolve())


def check_registries(registries: tuple[str, ...], insecure: tuple[str, ...]) -> None:
    """Exit for a mistake."""
    from sandpool.node.images.allowed import PUBLIC, trouble

    if wrong := trouble(registries):
        raise Exit(USAGE, f"--registry {wrong}, or the word {PUBLIC}")
    if wrong := trouble(insecure) or (repr(PUBLIC) + ": name each registry" if PUBLIC in insecure else ""):
        raise Exit(USAGE, f"--insecure-registry {wrong}")


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
