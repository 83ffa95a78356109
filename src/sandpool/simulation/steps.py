"""One step of the world: a change, who made it, and when. What invariants judge and what a trace consists of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandpool.controlplane.store.log import Unit
from sandpool.controlplane.store.memory_log import MemoryLog
from sandpool.controlplane.store.record import Change
from sandpool.model.metadata import Revision
from sandpool.model.resource import Resource
from sandpool.simulation.authorship import Author, author


@dataclass(slots=True)
class Step:
    """`old` and `new` as typed objects; `new` is None when the object is gone, `old` when it is new."""

    at: float
    author: Author
    resource: Resource[Any]
    key: str
    revision: Revision
    old: Any
    new: Any

    @property
    def object(self) -> Any:
        """The newest state there is of it."""
        return self.new if self.new is not None else self.old


class WitnessedLog(MemoryLog):
    """A log in memory that tells of each change in the moment in which it is decided, and who decided it."""

    def __init__(self, witness: Callable[[Change, Author], object], window: int = 20_000) -> None:
        super().__init__(window)
        self._witness = witness
        self.granted_by: Author | None = None  # who decided what the next claim is created with

    def append(self, unit: Unit) -> None:
        super().append(unit)
        who, granted_by = author(), self.granted_by
        self.granted_by = None
        self._witness(unit[0].change, who)
        for entry in unit[1:]:
            self._witness(entry.change, granted_by or who)
