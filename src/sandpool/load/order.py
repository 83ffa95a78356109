"""In which order claims were served, against the order in which they were made. Pure.

Both orders are those of the server's revisions, so they do not depend on when this process heard of anything; only by how much one claim was
overtaken is told in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from sandpool.load.record import ClaimRecord


@dataclass(frozen=True, slots=True)
class Inversions:
    claims: int  # that were served although an older one of their pool waited
    longest: (
        float  # seconds by which the older one was served later, at most; until the last was served, if it never was
    )


def inversions(records: Sequence[ClaimRecord]) -> Inversions | None:
    """None: the server's revisions are not known."""
    known = [record for record in records if record.created]
    if not known:
        return None
    end = max((record.ready for record in known if record.ready is not None), default=0.0)
    pools: dict[str, list[ClaimRecord]] = {}
    for record in known:
        pools.setdefault(record.pool, []).append(record)
    claims, longest = 0, 0.0
    for members in pools.values():
        for by in _overtakings(sorted(members, key=lambda record: record.created), end):
            claims, longest = claims + 1, max(longest, by)
    return Inversions(claims, longest)


def _overtakings(oldest_first: Iterable[ClaimRecord], end: float) -> Iterable[float]:
    """Of each claim that was served before an older one: how much later that was served."""
    latest, at = 0.0, 0.0  # when the last of the older ones was served: the revision, and the moment
    for record in oldest_first:
        served, ready = (record.served or inf, record.ready if record.ready is not None else end)
        if served < latest:
            yield max(0.0, at - ready)
        elif served > latest:
            latest, at = served, ready
