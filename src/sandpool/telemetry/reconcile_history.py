"""The reconcile history: what happened to a key, and why.

For each key it keeps a short ring of reconciles: when, its id, what woke it, what it planned, how it ended. It is bounded in keys and in
bytes (the key not touched for longest is forgotten first) and in entries per key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from datetime import datetime
from typing import Any

import msgspec

from sandpool.model import times

WROTE, TRIED, ASKED = "wrote", "tried", "asked"
"""First words of notes about calls to an API server: done, failed, read."""
MOST_NOTES = 32
LONGEST_NOTE = 512


class Notes(list[str]):
    """The notes of one reconcile, bounded: the last one may say how many more there were."""

    __slots__ = ("more",)

    def __init__(self) -> None:
        super().__init__()
        self.more = 0

    def add(self, note: str) -> None:
        if len(self) < MOST_NOTES:
            self.append(note if len(note) <= LONGEST_NOTE else note[:LONGEST_NOTE] + "...")
            return
        self.more += 1
        self[-1] = f"and {self.more + 1} more"


_PLAN: ContextVar[Notes | None] = ContextVar("sandpool_story_plan", default=None)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One reconcile. Not tracked by the garbage collector: tens of thousands are kept."""

    when: datetime  # when it ended
    rid: str
    trigger: str
    plan: str
    outcome: str
    took: float = 0.0  # seconds

    def shown(self) -> dict[str, Any]:
        """As JSON, for the pages that serve histories."""
        return {
            "when": times.micro(self.when),
            "seconds": round(self.took, 6),
            "rid": self.rid,
            "trigger": self.trigger,
            "plan": self.plan,
            "outcome": self.outcome,
        }

    def __str__(self) -> str:
        return f"{self.when.isoformat()} {self.rid} {self.trigger} | {self.plan or '-'} | {self.outcome}"


EACH = 480
"""Estimated bytes of an entry besides its texts."""


def _size(entry: Entry) -> int:
    return EACH + len(entry.plan) + len(entry.outcome) + len(entry.trigger)


class ReconcileHistory:
    """The last reconciles of each key, bounded in keys, entries and bytes."""

    def __init__(self, keys: int = 4096, entries: int = 32, size: int = 8 * 1024 * 1024) -> None:
        self._rings: OrderedDict[Hashable, tuple[Entry, ...]] = OrderedDict()  # most hold one or two entries
        self._keys = keys
        self._entries = entries
        self._most = size
        self.size = 0  # bytes

    def record(self, key: Hashable, entry: Entry) -> None:
        rings = self._rings
        ring = rings.get(key)
        self.size += _size(entry)
        if ring is None:
            rings[key] = (entry,)
        else:
            if len(ring) >= self._entries:
                self.size -= _size(ring[0])
                ring = ring[1:]
            rings[key] = (*ring, entry)
            rings.move_to_end(key)
        while len(rings) > self._keys or (self.size > self._most and len(rings) > 1):
            _, forgotten = rings.popitem(last=False)
            self.size -= sum(map(_size, forgotten))

    def of(self, key: Hashable) -> tuple[Entry, ...]:
        """The entries of a key, oldest first."""
        return self._rings.get(key, ())

    def __len__(self) -> int:
        return len(self._rings)


def note(plan: object) -> None:
    """Called inside a reconcile: adds to the plan that its entry will show, also when the reconcile fails later."""
    notes = _PLAN.get()
    if notes is not None:
        notes.add(str(plan))


take_notes: Callable[[Notes | None], object] = _PLAN.set
"""As `noting`, until it is called again: for a task that works on one thing after the other and never has to reset it."""


class noting:
    """Collects in `notes` what `note` is called with inside; a class and not a generator, because it runs around every reconcile."""

    __slots__ = ("_notes", "_token")

    def __init__(self, notes: Notes | None = None) -> None:
        self._notes = Notes() if notes is None else notes

    def __enter__(self) -> Notes:
        self._token = _PLAN.set(self._notes)
        return self._notes

    def __exit__(self, *_: object) -> None:
        _PLAN.reset(self._token)
