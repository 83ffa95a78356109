"""Counts pseudo terminals of ended containers that other processes still hold.

The machine has one limit for all terminals (`kernel.pty.max`). Each container has its own limit, which ends with it, but a terminal that was
passed to another container does not. So such terminals are counted for the tenant.

The devpts directory of an ended container lists terminals whose master is still open. If only the slave is open, the terminal is not listed
but still allocated. To count those, we open all free ones. That takes a few milliseconds, and is done only if so many terminals are in use on
the whole machine that unlisted ones could matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.namespaces.spawn_requests import TERMINALS
from sandpool.node.runtimes.namespaces.sysctls import SYSCTLS, read_sysctl

PLENTY, PART = 1024, 4  # "many" terminals on the machine: an absolute number, and a part (1/4) of the limit
_MASTER = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC


class Terminals:
    """The devpts directories of ended containers, by tenant, with the quota of each. If at least `plenty` terminals are in use on the machine, the
    directory of every ended container is counted."""

    def __init__(self, settings: Path = SYSCTLS, plenty: int = PLENTY) -> None:
        self.plenty = plenty
        self._settings = settings / "kernel" / "pty"
        self._lingering: dict[str, dict[int, int]] = {}
        self._held: dict[int, int] = {}  # by directory, as last counted
        self._turns: dict[str, asyncio.Lock] = {}
        self._counting: set[asyncio.Task[int]] = set()

    def ended(self, tenant: str, directory: int | None, most: int) -> None:
        """Call when a container has ended, with its open devpts directory and the most terminals it could have. The directory is closed when no
        terminal is left. Recounts the tenant's other directories, too, because this container may have held terminals of others."""
        if directory is None:
            return
        if _listed(directory) or self._many():
            self._lingering.setdefault(tenant, {})[directory] = most
            self._held[directory] = most  # until it is counted
        else:
            os.close(directory)
        if tenant not in self._lingering:
            return
        task = asyncio.get_running_loop().create_task(self.count(tenant))
        self._counting.add(task)
        task.add_done_callback(self._counting.discard)

    def _many(self) -> bool:
        used, most, kept = (read_sysctl(self._settings / name) for name in ("nr", "max", "reserve"))
        if used is None or most is None:
            return True
        return used >= min(self.plenty, (most - (kept or 0)) // PART)

    async def count(self, tenant: str) -> int:
        """Counts the terminals that ended containers of a tenant left with other processes."""
        if tenant not in self._lingering:
            return 0
        async with self._turns.setdefault(tenant, asyncio.Lock()):
            for directory, most in list(self._lingering.get(tenant, {}).items()):
                self._held[directory] = await asyncio.to_thread(_taken, directory, most)
                if not self._held[directory]:
                    del self._lingering[tenant][directory], self._held[directory]
                    os.close(directory)
            if not self._lingering.get(tenant, True):
                del self._lingering[tenant]
        return sum(self._held[directory] for directory in self._lingering.get(tenant, ()))

    async def check(self, tenant: str) -> int:
        """As `count`, but raises NodeError if there are too many for another container."""
        found = await self.count(tenant)
        if found < TERMINALS:
            return found
        raise NodeError(
            "TooManyTerminals",
            f"pods of namespace {tenant} hold {found} terminals of containers that have ended, and may hold {TERMINALS - 1}; "
            "end the pods that share volumes with those",
        )

    async def close(self) -> None:
        if self._counting:
            await asyncio.wait(self._counting)  # a thread cannot be stopped
        for directory in self._held:
            os.close(directory)
        self._lingering.clear()
        self._held.clear()
        self._turns.clear()


def _listed(directory: int) -> bool:
    with contextlib.suppress(OSError):
        return any(name.isdigit() for name in os.listdir(f"/proc/self/fd/{directory}"))  # it is an O_PATH descriptor
    return False


def _taken(directory: int, most: int) -> int:
    """How many terminals of an ended container are in use: its quota minus those that can still be opened. Blocks."""
    free: list[int] = []
    try:
        while len(free) < most:
            free.append(os.open("ptmx", _MASTER, dir_fd=directory))
    except OSError:
        pass
    finally:
        for file in free:
            os.close(file)
    return most - len(free)
