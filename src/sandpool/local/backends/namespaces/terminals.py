"""Pseudo terminals of ended containers that others still have.

The machine has one number of them for all (`kernel.pty.max`). Each container has a bound of its own, which ends with it; a terminal that was
passed on does not. So they are counted for the tenant: the folder of an ended container's terminals lists those that are left."""

from __future__ import annotations

import contextlib
import os

from sandpool.local.backends.namespaces.orders import TERMINALS
from sandpool.local.errors import NodeError


class Terminals:
    """Has the open folders, by tenant: never more than there are terminals in them."""

    def __init__(self) -> None:
        self._left: dict[str, list[int]] = {}

    def ended(self, tenant: str, folder: int | None) -> None:
        """Call when a container has ended, with the open folder of its terminals, which is closed when it is empty."""
        if folder is None:
            return
        self._left.setdefault(tenant, []).append(folder)
        self.count(tenant)

    def count(self, tenant: str) -> int:
        """Those that pods of a tenant have left with others."""
        total = 0
        kept = []
        for folder in self._left.pop(tenant, ()):
            if found := _terminals(folder):
                total += found
                kept.append(folder)
            else:
                os.close(folder)
        if kept:
            self._left[tenant] = kept
        return total

    def check(self, tenant: str) -> int:
        """The same. NodeError if there are so many that another container would be too much."""
        found = self.count(tenant)
        if found < TERMINALS:
            return found
        raise NodeError(
            "TooManyTerminals",
            f"pods of namespace {tenant} hold {found} terminals of containers that have ended, and may hold {TERMINALS - 1}; "
            "end the pods that share volumes with those",
        )

    def close(self) -> None:
        for folders in self._left.values():
            for folder in folders:
                os.close(folder)
        self._left.clear()


def _terminals(folder: int) -> int:
    with contextlib.suppress(OSError):
        return sum(name.isdigit() for name in os.listdir(f"/proc/self/fd/{folder}"))  # it was not opened to be read
    return 0
