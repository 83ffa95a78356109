"""Where a node keeps what it needs, below the folder that it was given."""

from __future__ import annotations

import hashlib
from pathlib import Path


def installation_of(folder: Path) -> str:
    """A short name for what belongs to this folder, which nothing of another data directory of this machine has."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]


def images_of(folder: Path) -> Path:
    """The images of the node. `sandpool image` uses the same ones, beside it."""
    return folder / "images"
