"""Computes the numbers of a report from records and counts, including the order of service. Pure.

Latencies are in milliseconds and count from the claim's scheduled time; `from_sent` has the same counted from when it was sent.
The difference is what a closed-loop generator would have hidden.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from sandpool.load.counts import Counts
from sandpool.load.distribution import levels, peak, percentile, rate
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
    """For each claim that was served before an older one: how much later the older one was served."""
    latest, at = 0.0, 0.0  # when the last of the older ones was served: the revision, and the moment
    for record in oldest_first:
        served, ready = (record.served or inf, record.ready if record.ready is not None else end)
        if served < latest:
            yield max(0.0, at - ready)
        elif served > latest:
            latest, at = served, ready


POINTS = ((50.0, "p50_ms"), (90.0, "p90_ms"), (99.0, "p99_ms"), (99.9, "p99_9_ms"))
LATER = 2 / 3
"""Fraction of the arrival time that counts: before it, a full pool serves from its stock."""
_ROUND = 3


@dataclass(frozen=True, slots=True)
class Used:
    """CPU and memory of processes during the run; None if unknown."""

    generator_cpu: float
    driven: float = 0.0  # seconds in which the generator used it
    server_cpu: float | None = None
    server_peak: int | None = None
    others: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by metrics page


def summarise(records: Sequence[ClaimRecord], counts: Counts, used: Used) -> dict[str, Any]:
    ready = [record for record in records if record.ready is not None]
    errors = Counter(record.error for record in records if record.error)
    first = min((record.scheduled for record in records), default=0.0)
    last = max((record.ready or 0.0 for record in ready), default=0.0)
    wall = max(0.0, last - first)
    warm = [record.warm for record in ready if record.warm is not None]
    latencies = _latencies(record.latency for record in ready)
    return {
        "claims": len(records),
        "ready": len(ready),
        "failed": sum(1 for record in records if record.error),
        "failed_admitted": sum(1 for record in records if record.error and record.admitted),
        **latencies,
        "wall_s": _rounded(wall),
        "claims_per_s": _rounded(len(ready) / wall if wall else None),
        **_goodput(records),
        "warm_fraction": _rounded(sum(warm) / len(warm) if warm else None, 4),
        "conflicts": counts.conflicts,
        "not_found": counts.not_found,
        "writes_per_claim": _each(counts.controller_writes, len(ready)),
        "reconciles_per_claim": _each(counts.reconciles, len(ready)),
        **_points("first_output", (r.first_output - r.scheduled for r in ready if r.first_output is not None)),
        **_points("files", (r.files for r in ready if r.files is not None)),
        "errors": sum(errors.values()),
        "errors_by_kind": dict(errors.most_common()),
        **_order(records),
        "throttled": sum(record.throttled for record in records),
        "turned_away": sum(record.turned_away for record in records),
        "not_sent": sum(record.not_sent for record in records),
        "from_sent": _latencies(record.latency_from_sent for record in ready),
        "late_p99_ms": _late(records),
        "submit_per_s": _rounded(rate([record.sent for record in records if record.sent is not None])),
        "completion_per_s": _rounded(rate([record.ready for record in ready if record.ready is not None])),
        "peak_waiting": peak(waiting(records)),
        "peak_held": peak(held(records)),
        **_release(records),
        "writes": {component: dict(sorted(kinds.items())) for component, kinds in counts.writes.items()},
        "stored_writes": counts.stored,
        "counted_from": counts.source,
        "not_told": dict(counts.reasons),
        **_used(used),
    }


def goodput(records: Sequence[ClaimRecord], share: float = 1.0) -> float | None:
    """Claims that became Ready a second while claims came, or in the last `share` of that time; None if all came at once."""
    moments = [record.scheduled for record in records]
    first, last = min(moments, default=0.0), max(moments, default=0.0)
    begin = last - (last - first) * share
    if begin >= last:
        return None
    return sum(1 for record in records if record.ready is not None and begin < record.ready <= last) / (last - begin)


def _goodput(records: Sequence[ClaimRecord]) -> dict[str, float | None]:
    return {"goodput_per_s": _rounded(goodput(records)), "sustained_per_s": _rounded(goodput(records, LATER))}


def _order(records: Sequence[ClaimRecord]) -> dict[str, float | None]:
    found = inversions(records)
    if found is None:
        return {"inversions": None, "inversion_max_ms": None}
    return {"inversions": found.claims, "inversion_max_ms": _ms(found.longest)}


def waiting(records: Iterable[ClaimRecord]) -> list[tuple[float, int]]:
    """Claims that wait, over time: from their moment until they are Ready. One that failed waits until the end."""
    return levels(_steps((record.scheduled, record.ready) for record in records))


def held(records: Iterable[ClaimRecord]) -> list[tuple[float, int]]:
    """Claims that are Ready and not yet released, over time."""
    return levels(_steps((record.ready, record.release_sent) for record in records))


def _steps(spans: Iterable[tuple[float | None, float | None]]) -> Iterable[tuple[float, int]]:
    for begin, end in spans:
        if begin is not None:
            yield begin, 1
            if end is not None:
                yield end, -1


def _latencies(samples: Iterable[float | None]) -> dict[str, float | None]:
    ordered = sorted(sample for sample in samples if sample is not None)
    found = {name: _ms(percentile(ordered, percent)) for percent, name in POINTS}
    mean = sum(ordered) / len(ordered) if ordered else None
    return {**found, "max_ms": _ms(ordered[-1] if ordered else None), "mean_ms": _ms(mean)}


def _points(what: str, samples: Iterable[float]) -> dict[str, float | None]:
    ordered = sorted(samples)
    return {f"{what}_{name}": _ms(percentile(ordered, percent)) for percent, name in POINTS}


def _release(records: Sequence[ClaimRecord]) -> dict[str, Any]:
    took = sorted(
        record.released - record.release_sent
        for record in records
        if record.released is not None and record.release_sent is not None
    )
    return {
        "released": len(took),
        "release_p50_ms": _ms(percentile(took, 50)),
        "release_p99_ms": _ms(percentile(took, 99)),
    }


def _late(records: Sequence[ClaimRecord]) -> float | None:
    return _ms(percentile(sorted(r.sent - r.scheduled for r in records if r.sent is not None), 99))


def _used(used: Used) -> dict[str, Any]:
    return {
        "generator_cpu_s": _rounded(used.generator_cpu),
        "generator_cpu_share": _rounded(used.generator_cpu / used.driven if used.driven else None),
        "server_cpu_s": _rounded(used.server_cpu),
        "server_peak_bytes": used.server_peak,
        "processes": {name: dict(values) for name, values in used.others.items()},
    }


def _each(count: int | None, claims: int) -> float | None:
    return None if count is None or not claims else _rounded(count / claims)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else _rounded(seconds * 1000)


def _rounded(value: float | None, digits: int = _ROUND) -> float | None:
    return None if value is None else round(value, digits)
