"""Pseudo terminals of ended containers that others still have.

The machine has one number of them for all (`kernel.pty.max`). Each container has a bound of its own, which ends with it; a terminal that was
passed on does not. So they are counted for the tenant.

The folder of an ended container's terminals lists those whose master somebody has. If only the other end is left, it is not listed and
still taken: how many are, is known by opening all others. That takes a few milliseconds, and is done only where so many are in use on
the whole machine that what is not listed could matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.namespaces.machine_numbers import SETTINGS, read
from sandpool.node.runtimes.namespaces.orders import TERMINALS

PLENTY, PART = 1024, 4  # in use on the whole machine; never more than so much of what there is
_MASTER = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC


class Terminals:
    """Has the open folders, by tenant, with how many their containers could have. `plenty`: with so many in use on the machine, each
    folder is looked at."""

    def __init__(self, settings: Path = SETTINGS, plenty: int = PLENTY) -> None:
        self.plenty = plenty
        self._settings = settings / "kernel" / "pty"
        self._left: dict[str, dict[int, int]] = {}
        self._held: dict[int, int] = {}  # by folder, as last counted
        self._turns: dict[str, asyncio.Lock] = {}
        self._looking: set[asyncio.Task[int]] = set()

    def ended(self, tenant: str, folder: int | None, most: int) -> None:
        """Call when a container has ended that could have so many, with the open folder of its terminals, which is closed when none is
        left. It may have been the one that held those of others."""
        if folder is None:
            return
        if _listed(folder) or self._many():
            self._left.setdefault(tenant, {})[folder] = most
            self._held[folder] = most  # until somebody has looked
        else:
            os.close(folder)
        if tenant not in self._left:
            return
        task = asyncio.get_running_loop().create_task(self.count(tenant))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    def _many(self) -> bool:
        used, most, kept = (read(self._settings / name) for name in ("nr", "max", "reserve"))
        if used is None or most is None:
            return True
        return used >= min(self.plenty, (most - (kept or 0)) // PART)

    async def count(self, tenant: str) -> int:
        """Those that pods of a tenant have left with others."""
        if tenant not in self._left:
            return 0
        async with self._turns.setdefault(tenant, asyncio.Lock()):
            for folder, most in list(self._left.get(tenant, {}).items()):
                self._held[folder] = await asyncio.to_thread(_taken, folder, most)
                if not self._held[folder]:
                    del self._left[tenant][folder], self._held[folder]
                    os.close(folder)
            if not self._left.get(tenant, True):
                del self._left[tenant]
        return sum(self._held[folder] for folder in self._left.get(tenant, ()))

    async def check(self, tenant: str) -> int:
        """The same. NodeError if there are so many that another container would be too much."""
        found = await self.count(tenant)
        if found < TERMINALS:
            return found
        raise NodeError(
            "TooManyTerminals",
            f"pods of namespace {tenant} hold {found} terminals of containers that have ended, and may hold {TERMINALS - 1}; "
            "end the pods that share volumes with those",
        )

    async def close(self) -> None:
        if self._looking:
            await asyncio.wait(self._looking)  # a thread cannot be stopped
        for folder in self._held:
            os.close(folder)
        self._left.clear()
        self._held.clear()
        self._turns.clear()


def _listed(folder: int) -> bool:
    with contextlib.suppress(OSError):
        return any(name.isdigit() for name in os.listdir(f"/proc/self/fd/{folder}"))  # it was not opened to be read
    return False


def _taken(folder: int, most: int) -> int:
    """How many of the terminals that a container could have are somebody's. Blocking."""
    free: list[int] = []
    try:
        while len(free) < most:
            free.append(os.open("ptmx", _MASTER, dir_fd=folder))
    except OSError:
        pass
    finally:
        for file in free:
            os.close(file)
    return most - len(free)
