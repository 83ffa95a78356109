"""What an operator can decide about the volumes of this machine's pods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class VolumeOptions:
    host_paths: tuple[Path, ...] = ()  # folders of this machine that pods may mount, with all that is in them
    memory_size: int = 256 * MIB  # of an emptyDir in memory that names no size
    images: bool = False  # as root: volumes with a size are file systems of that size, in a file each
    memory: tuple[Path, ...] | None = None  # where secrets may be kept in memory; None: what this machine has
