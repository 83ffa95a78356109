"""Ranges of ids for sandboxes, when the runtime is root. Nobody else uses them: systemd lists them as unused, and they are far
above what distributions hand out to people, daemons and other containers.

The kernel counts some things by id (inotify instances, pages of pipes, files in flight), and counts what an ended sandbox has passed on to
others for as long as they hold it. So a range that a tenant has used is that tenant's, as long as there are others."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from sandpool.node.runtimes.namespaces.forked.owners import EACH, FIRST

COUNT = 4096


@dataclass(slots=True)
class Slots:
    """Two installations on one machine begin at different places."""

    installation: str
    _taken: dict[int, str] = field(default_factory=dict)  # the tenants that have them now
    _left: dict[int, str] = field(default_factory=dict)  # those that had them last, longest unused first
    _left_by: dict[str, dict[int, None]] = field(default_factory=dict)  # the same, by tenant
    _fresh: int = 0  # how many were ever taken

    def take(self, tenant: str) -> int | None:
        """The first id of a range: of one that the tenant had before, else of one that nobody had, else of the one that is longest unused.
        None if all are in use."""
        slot = self._choose(tenant)
        if slot is None:
            return None
        self._taken[slot] = tenant
        return FIRST + slot * EACH

    def _choose(self, tenant: str) -> int | None:
        if tenant not in self._left_by and self._fresh < COUNT:
            self._fresh += 1
            return (zlib.crc32(self.installation.encode()) + self._fresh - 1) % COUNT
        slot = next(iter(self._left_by.get(tenant, self._left)), None)
        if slot is not None:
            last = self._left.pop(slot)
            del self._left_by[last][slot]
            if not self._left_by[last]:
                del self._left_by[last]
        return slot

    def give_back(self, base: int) -> None:
        slot = (base - FIRST) // EACH
        tenant = self._taken.pop(slot, None)
        if tenant is not None:
            self._left[slot] = tenant
            self._left_by.setdefault(tenant, {})[slot] = None
