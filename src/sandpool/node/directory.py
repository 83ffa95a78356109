"""Where a node keeps its data, below the directory it was given."""

from __future__ import annotations

import hashlib
from pathlib import Path


def installation_of(directory: Path) -> str:
    """A short name, unique to this data directory on this machine, for control groups and the like."""
    return hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:12]


def images_of(directory: Path) -> Path:
    """The image directory of the node, which `sandpool image` uses as well."""
    return directory / "images"
