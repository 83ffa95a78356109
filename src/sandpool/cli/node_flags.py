"""Flags about what runs the pods of a local cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from sandpool.local.images.options import ImageOptions
    from sandpool.local.volumes.options import VolumeOptions

NOTICES = {
    "namespaces": "Backend namespaces: each pod runs in namespaces of its own, without capabilities.",
    "gvisor": "Backend gvisor: each pod runs on a kernel of its own, gVisor's, without capabilities.",
    "process": "Backend process: NOTHING IS ISOLATED. Pods are ordinary processes of yours; run only code that you trust.",
    "hollow": "Backend hollow: pods become Ready and have an address, but no process runs in them.",
    "none": "Backend none: objects are kept and nothing acts on them; leave out --backend none for pools and claims.",
}


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

    enforce_volume_sizes: Annotated[
        bool,
        Parameter(negative="", help="As root: volumes that name a size are file systems of that size, in a file each."),
    ] = False

    def arguments(self) -> list[str]:
        """The same again, for another run of the command."""
        return [
            f"--backend={self.backend}",
            *(f"--allow-host-path={path.absolute()}" for path in self.allow_host_path),
            *(f"--allow-image-folder={path.absolute()}" for path in self.allow_image_folder),
            *(f"--insecure-registry={name}" for name in self.insecure_registry),
            *(["--enforce-volume-sizes"] if self.enforce_volume_sizes else []),
        ]

    def images(self) -> ImageOptions:
        from urllib.request import getproxies

        from sandpool.local.images.options import ImageOptions

        return ImageOptions(
            allowed_folders=self.allow_image_folder, insecure_registries=self.insecure_registry, proxies=getproxies()
        )

    def volumes(self) -> VolumeOptions:
        from sandpool.local.volumes.options import VolumeOptions

        return VolumeOptions(host_paths=self.allow_host_path, images=self.enforce_volume_sizes)
