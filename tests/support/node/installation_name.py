"""A name for an installation that no other test has, also in another worker: names of folders are cut, whole paths are not."""

from __future__ import annotations

import hashlib
from pathlib import Path


def installation_name(folder: Path) -> str:
    return hashlib.sha256(str(folder).encode()).hexdigest()[:12]
