"""The keys under a prefix as they were: today's state with the newer changes undone."""

from __future__ import annotations

from collections.abc import Iterator

from sandpool.controlplane.store.history import History
from sandpool.controlplane.store.record import Record, Snapshot
from sandpool.controlplane.store.state import State
from sandpool.model.metadata import Revision


def scan_at(state: State, history: History, prefix: str, at: Revision, after: str, limit: int) -> Snapshot:
    """Costs a walk over the newer changes of the resource, and then only the records that it returns."""
    former: dict[str, Record | None] = {}
    for change in reversed(history.since(prefix, at)):
        key = change.record.key
        if key.startswith(prefix) and key > after:
            former[key] = change.previous  # the earliest change comes last and tells what was there before it
    total = state.count(prefix, after)
    for key, record in former.items():
        total += (record is not None) - (state.get(key) is not None)
    found: list[Record] = []
    for record in _merged(state, prefix, after, former):
        if limit and len(found) == limit:
            break
        found.append(record)
    return Snapshot(tuple(found), at, total - len(found))


def _merged(state: State, prefix: str, after: str, former: dict[str, Record | None]) -> Iterator[Record]:
    """Records in key order: those of `former` instead of, or between, those of today."""
    changed = sorted(former)
    position = 0
    for key in state.keys(prefix, after):
        while position < len(changed) and changed[position] <= key:
            record = former[changed[position]]
            position += 1
            if record is not None:
                yield record
        if key not in former:
            record = state.get(key)
            assert record is not None
            yield record
    for key in changed[position:]:
        record = former[key]
        if record is not None:
            yield record
