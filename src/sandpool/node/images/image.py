"""An image as a backend needs it: where its files are, and what it says about running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RootFs:
    """The files. `layers` are read-only folders, lowest first, shared by all who use them, by paths without symbolic links: whoever mounts
    them follows none; `host` stands for this machine's own programs (/usr and what it needs of /etc), below all layers."""

    layers: tuple[Path, ...] = ()
    host: bool = False


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What the image says about running it; a container's spec goes before."""

    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = ""
    user: str = ""  # name or number, with a group after a colon
    stop_signal: str = ""


@dataclass(frozen=True, slots=True)
class Image:
    reference: str  # as it was asked for
    id: str  # sha256:... of what it is; empty for the machine's own and for folders
    rootfs: RootFs
    config: ImageConfig = ImageConfig()
