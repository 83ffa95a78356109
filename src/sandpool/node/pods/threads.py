"""Threads for blocking work on files."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from sandpool.base.offload import FairThreads
from sandpool.node.backend import BackendError
from sandpool.node.volumes.trash import Steps, empty

T = TypeVar("T")
_STEPS = 200  # files removed in one turn


class Threads:
    """Threads that namespaces share; `of` returns those of one namespace."""

    def __init__(self, name: str, count: int) -> None:
        self._pool = FairThreads(f"sandpool-{name}", count)
        self._tenant = ""
        self._closed = [False]

    def of(self, tenant: str) -> Threads:
        """The same threads, for work of one namespace."""
        same = copy.copy(self)
        same._tenant = tenant
        return same

    async def run(self, call: Callable[[], T]) -> T:
        if self._closed[0]:  # a client is still reading a log
            raise BackendError("Closed", "this backend has been closed")
        try:
            return await self._pool.run(self._tenant, call)
        finally:
            del call  # else a failure and this frame hold each other

    async def empty(self, moved: Iterable[Path]) -> None:
        """Removes directories of a trash in small steps, between which other namespaces get their turn."""
        for directory in moved:
            while not await self.run(partial(empty, directory, Steps(_STEPS))):
                pass

    def close(self) -> None:
        """Returns when all work that was begun is done."""
        self._closed[0] = True
        self._pool.close()
