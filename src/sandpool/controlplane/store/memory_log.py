"""The twin of the SQLite log that keeps nothing: the writes of one turn of the loop are one commit, made at its end.

No thread and no clock, so that stores run in virtual time.
"""

from __future__ import annotations

import asyncio

from sandpool.controlplane.store.log import Commit, Loaded, Sink, Unit
from sandpool.model.metadata import NO_REVISION, Revision


class MemoryLog:
    def __init__(self, window: int = 20_000) -> None:
        self._window = window
        self._sink: Sink | None = None
        self._units: list[Unit] = []

    async def open(self, sink: Sink) -> Loaded:
        self._sink = sink
        return Loaded()

    def append(self, unit: Unit) -> None:
        if not self._units:
            asyncio.get_running_loop().call_soon(self._commit)
        self._units.append(unit)

    def _commit(self) -> None:
        units, self._units = self._units, []
        if units and self._sink is not None:
            newest = units[-1][-1].change.record.revision
            floor = Revision(max(NO_REVISION, newest - self._window))
            self._sink.committed(Commit(len(units), sum(map(len, units)), 0.0, floor))

    async def close(self) -> None:
        self._commit()
