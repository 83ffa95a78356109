"""An ordinary user, for tests that root runs: an interpreter that user may start, and a copy of the package to read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import sandpool

NOBODY = 65534
NEEDED = ("msgspec", "typing_extensions.py")


def interpreter() -> str:
    """One of this very version that another user may start."""
    for candidate in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        try:
            done = subprocess.run(
                [candidate, "-c", "import sys; print(sys.version_info[:2])"], user=NOBODY, group=NOBODY, extra_groups=[],
                cwd="/", capture_output=True, text=True, check=False,
            )  # fmt: skip
        except OSError:
            continue
        if done.stdout.strip() == str(sys.version_info[:2]):
            return candidate
    pytest.skip("no interpreter of this version that another user may start")


def readable_copy(home: Path, more: Sequence[str] = ()) -> Path:
    """The package, what the runtime needs of others (and `more`, by name), and the support of the tests."""
    site = next(Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    target = home / "site"
    target.mkdir()
    for source in (
        *(site / name for name in (*NEEDED, *more)),
        Path(sandpool.__file__).parent,
        Path(__file__).parents[1],
    ):
        if source.is_dir():
            shutil.copytree(source, target / source.name)  # with what is compiled: times are copied, too
        elif source.exists():
            shutil.copy(source, target / source.name)
    for path in (target, *target.rglob("*")):
        os.chmod(path, 0o755 if path.is_dir() else 0o644)
    return target
