"""Which control groups this installation has made, kept in its data directory: a later process finds them even if it runs in
another control group than the one that was killed.

A path is written down, durably, before the group is made. What is read is only a hint: a group is taken away only if its name is
this installation's and it is below a hierarchy that is mounted here.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 1 << 20


def ours(paths: Iterable[str], name: str, mounted: Sequence[str]) -> list[str]:
    """Those of the paths that are groups of this installation: by their last part, below a mounted hierarchy, without detours."""
    found = []
    for path in dict.fromkeys(paths):
        parent, _, last = path.rpartition("/")
        straight = os.path.normpath(path) == path
        if straight and last == name and any(parent == top or parent.startswith(f"{top}/") for top in mounted):
            found.append(path)
    return found


@dataclass(frozen=True, slots=True)
class GroupJournal:
    """One file. A damaged one counts as empty: what it named is then found only from the same control group."""

    file: Path

    def read(self) -> list[str]:
        try:
            with self.file.open("rb") as file:
                found = json.loads(file.read(MOST_BYTES))
        except (OSError, ValueError):
            return []
        return [path for path in found if isinstance(path, str)] if isinstance(found, list) else []

    def add(self, paths: Iterable[str]) -> None:
        """On disk when this returns, beside what was there. Nothing is written if all of it was."""
        known = self.read()
        if new := [path for path in dict.fromkeys(paths) if path not in known]:
            self._write([*known, *new])

    def keep(self, paths: Iterable[str]) -> None:
        """All others are gone."""
        if kept := [path for path in self.read() if path in set(paths)]:
            self._write(kept)
        else:
            self.file.unlink(missing_ok=True)

    def _write(self, paths: list[str]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self.file.with_suffix(".new")
        with temporary.open("w") as file:
            json.dump(paths, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.file)
        folder = os.open(self.file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_empty(paths: Iterable[str]) -> None:
    """Groups in which somebody else may be: only those with nobody in them."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.rmdir(path)
