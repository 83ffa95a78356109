"""The runsc that tests use: the one that is named, that was built for tests, or that this machine has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kube.build import find


def path() -> Path | None:
    named = os.environ.get("SANDPOOL_RUNSC")
    if named:
        return Path(named)
    built = find("runsc")
    if built is not None:
        return Path(built)
    found = shutil.which("runsc")
    return Path(found) if found else None
