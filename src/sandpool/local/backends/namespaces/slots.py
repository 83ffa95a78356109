"""Ranges of ids for sandboxes, when the runtime is root. Nobody else uses them: systemd lists them as unused, and they are far
above what distributions hand out to people, daemons and other containers."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from sandpool.local.backends.namespaces.forked.owners import EACH, FIRST

COUNT = 4096


@dataclass(slots=True)
class Slots:
    """Two installations on one machine begin at different places."""

    installation: str
    _taken: set[int] = field(default_factory=set)

    def take(self) -> int | None:
        """The lowest free range, by its first id; None if all are in use."""
        begin = zlib.crc32(self.installation.encode()) % COUNT
        for step in range(COUNT):
            slot = (begin + step) % COUNT
            if slot not in self._taken:
                self._taken.add(slot)
                return FIRST + slot * EACH
        return None

    def give_back(self, base: int) -> None:
        self._taken.discard((base - FIRST) // EACH)
