"""Logs for tests of the store: one that commits, or fails, only when it is told to."""

from __future__ import annotations

from sandpool.controlplane.store.errors import StoreFailed
from sandpool.controlplane.store.log import Commit, Loaded, Sink, Unit
from sandpool.model.metadata import NO_REVISION


class HeldLog:
    """Holds what is appended until `commit` or `fail`."""

    def __init__(self) -> None:
        self.held: list[Unit] = []
        self.sink: Sink | None = None

    async def open(self, sink: Sink) -> Loaded:
        self.sink = sink
        return Loaded()

    def append(self, unit: Unit) -> None:
        self.held.append(unit)

    def commit(self, units: int) -> None:
        """Makes the first so many units durable, as one commit."""
        assert self.sink is not None
        done, self.held = self.held[:units], self.held[units:]
        if done:
            self.sink.committed(Commit(len(done), sum(map(len, done)), 0.0, NO_REVISION))

    def fail(self) -> None:
        assert self.sink is not None
        self.held.clear()
        self.sink.failed(StoreFailed("this log was told to fail"))

    async def close(self) -> None:
        self.commit(len(self.held))
