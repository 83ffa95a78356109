"""Flags of `sandpool up` about its node: runtimes, registries, networks, volumes, disk, first pools."""

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
    from sandpool.node.network.egress_rules import Ceiling
    from sandpool.node.volumes.spec import VolumeOptions

NOTICES = {
    "namespaces": "Backend namespaces: each pod runs in its own namespaces, without capabilities.",
    "gvisor": "Backend gvisor: each pod runs on its own gVisor kernel, without capabilities.",
    "process": "Backend process: NOTHING IS ISOLATED. Pods are ordinary processes of your user; run only code that you trust.",
    "hollow": "Backend hollow: pods become Ready and have an address, but no process runs in them.",
    "none": "Backend none: objects are stored and nothing acts on them; leave out --backend none to use pools and claims.",
}

UNHELD_LIMITS = {"cpu": "CPU", "memory": "memory", "pids": "processes", "storage": "disk space", "io": "disk bandwidth"}
DELEGATE = "systemd-run --user --scope -p Delegate=yes sandpool up"


def unheld_notice(backend: str, unheld: Sequence[str]) -> tuple[str, ...]:
    """Warnings about limits that this machine does not enforce; the notice of the backend process already says so."""
    if not unheld or backend == "process":
        return ()
    named = [UNHELD_LIMITS.get(name, name) for name in unheld]
    listed = " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    alone = " Memory is limited for each process alone." if backend == "namespaces" and "memory" in unheld else ""
    warning = (
        f"NOT ENFORCED on this machine: limits of {listed}. A sandbox can use more than its template allows.{alone}"
    )
    if not {"cpu", "memory"} & {*unheld}:
        return (warning,)
    return (warning, f"  To enforce them, run it as root, or with delegated control groups: {DELEGATE}")


NO_POOL = "none"
UNHELD = ("process", "none")
"""Backends without first pools: their template promises isolation, which these do not have."""
MOST_MEMBERS = 10_000
LEAST_RESERVE, MOST_RESERVE = 16 << 20, 64 << 30
LEAST_IO_RATE = 1 << 20


@Parameter(name="*")
@dataclass(frozen=True)
class NodeFlags:
    backend: Annotated[
        Literal["namespaces", "gvisor", "process", "fake", "hollow", "none"],
        Parameter(
            env_var="SANDPOOL_BACKEND",
            help="How pods run. namespaces: isolated processes. gvisor: on their own kernel, by runsc from "
            "SANDPOOL_RUNSC or PATH. process: processes WITHOUT any isolation. "
            "fake (or hollow): Ready, with an address, but no process starts. none: nothing acts on objects.",
        ),
    ] = "namespaces"
    allow_host_path: Annotated[
        tuple[Path, ...], Parameter(negative="", help="A directory of this machine that pods may mount as hostPath.")
    ] = ()
    allow_image_folder: Annotated[
        tuple[Path, ...],
        Parameter(negative="", help="A directory below which root file systems may be used as images, as dir:/PATH."),
    ] = ()
    registry: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="HOST, HOST:PORT or HOST:*, with or without /PATH: a registry that images may be pulled from. Repeatable. The word "
            "public stands for every registry at a public address with TLS, and is the default. This machine's own addresses "
            "are reached only if they are listed with a port, such as localhost:5000.",
        ),
    ] = ("public",)
    insecure_registry: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="HOST or HOST:PORT of a registry that images may be pulled from without TLS. Registries of --registry on "
            "loopback need no TLS either.",
        ),
    ] = ()
    allow_runtime: Annotated[
        tuple[Literal["namespaces", "gvisor"], ...],
        Parameter(
            negative="",
            help="A runtime that pods may choose by runtimeClassName in addition to --backend. Repeatable. Default: none.",
        ),
    ] = ()
    allow_egress: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="CIDR or CIDR:PORTS, such as 203.0.113.0/24:443,8000-8999: the most that NetworkPolicies may allow sandboxes to reach. "
            "Repeatable. Default: policies alone decide; none: nothing can be reached.",
        ),
    ] = ()
    pool: Annotated[
        tuple[str, ...] | None,
        Parameter(
            negative="--no-pool",
            env_var="SANDPOOL_POOL",
            help="NAME=N: keep N warm sandboxes in pool NAME; created from template `python` if missing. Repeatable. "
            "Default: python=3, unless there is a pool python. --no-pool, or none in the variable: no pool.",
        ),
    ] = None
    enforce_volume_sizes: Annotated[
        bool,
        Parameter(
            negative="", help="As root: volumes with a size are file systems of that size, each in its own file."
        ),
    ] = False
    disk_reserve: Annotated[
        str,
        Parameter(
            show_default=False,
            env_var="SANDPOOL_DISK_RESERVE",
            help="Space reserved on the disk of the data directory, such as 512Mi, so that deletes and status are stored even when "
            "sandboxes have filled it. 0: none. Default: 1 % of the disk, from 64Mi to 256Mi.",
        ),
    ] = ""

    io_limit: Annotated[
        str | None,
        Parameter(
            negative="",
            help="Bytes a second, such as 50Mi, that each pod may read from, and write to, the disk of the data directory. "
            "Default: the disk's scheduler decides.",
        ),
    ] = None

    def arguments(self) -> list[str]:
        """These flags as arguments, for the detached process."""
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
        """Exits if pods could change files that the cluster trusts: they may place links, or anything else, where they may write."""
        trusted = {"the data directory": data} | {
            f"--allow-image-folder {path}": path for path in self.allow_image_folder
        }
        for host in self.allow_host_path:
            for what, path in trusted.items():
                if _lies_in(path, host) or (path == data and _lies_in(host, path)):
                    raise Exit(
                        USAGE,
                        f"--allow-host-path {host} contains, or lies in, {what}: a pod that mounts it could change what others rely on. "
                        "Allow a directory outside of it",
                    )

    def settings(self) -> dict[str, Any]:
        """The options of the node of a local cluster. Exits for a mistake."""
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
        """The first pools. Exits for a mistake."""
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
        """Runtimes that pods may choose besides the backend. Exits for a mistake."""
        if self.allow_runtime and self.backend in ("fake", "hollow", "none"):
            raise Exit(
                USAGE, f"--allow-runtime does not go with --backend {self.backend}, which runs nothing: leave it out"
            )
        return self.allow_runtime

    def ceiling(self) -> Ceiling:
        """The most that NetworkPolicies may allow. Exits for a mistake."""
        from sandpool.node.network.egress_rules import CeilingError, ceiling_of

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
        """Bytes; None without the flag. Exits for a mistake."""
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
            allowed_directories=self.allow_image_folder,
            registries=self.registry,
            insecure_registries=self.insecure_registry,
            proxies=getproxies(),
        )

    def volumes(self) -> VolumeOptions:
        from sandpool.node.volumes.spec import VolumeOptions

        return VolumeOptions(host_paths=self.allow_host_path, images=self.enforce_volume_sizes)

    def io_rate(self) -> int | None:
        """Bytes a second. Exits for a mistake."""
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


def _lies_in(path: Path, directory: Path) -> bool:
    return path.absolute().is_relative_to(directory.absolute()) or path.resolve().is_relative_to(directory.resolve())


def check_registries(registries: tuple[str, ...], insecure: tuple[str, ...]) -> None:
    """Exits for a mistake."""
    from sandpool.node.images.registry_policy import PUBLIC, trouble

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
