"""Options of the pool controller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    batch: int = 300
    """Creates, and deletes, of one pool in one reconcile, at most."""
    concurrency: int = 32
    """Concurrent writes of one reconcile. After a failure they start with one and double."""
    replenish_delay: float = 0.0
    """Seconds that refill waits after members were taken; 0: not at all. Each further loss restarts the wait."""
    longest_hold: float = 4.0
    """Refill begins at the latest after this many delays: steady arrivals must not drain a pool."""
    refill_rate: float = 0.0
    """Creates a second of one pool; 0: no limit."""
    most_warming: int = 0
    """Young members of one pool that may be warming at once; 0: any number. On one machine, if a whole pool starts at once, its first member is
    ready when nearly all are, and waiting claims are served in one late wave."""
    young: float = 10.0
    """Seconds that a member counts as young. Members that do not start must not keep a pool from its size."""
    readiness_grace: float = 300.0
    """Seconds that a member may be not Ready before it is replaced. An unschedulable member is kept."""
    longest_grace: float = 3600.0
    """Upper bound of the grace, which doubles with each generation of replacements: a broken template must not churn for ever."""
    repair_pause: float = 30.0
    """Seconds that a repaired member is left alone if it loses its labels or owner again: two writers that correct each other at once would never
    stop."""
    refusal_pause: float = 300.0
    """Seconds until creating members that the server rejects is tried again: no event says when an admission policy changes."""
    moment: float = 1.0
    """Seconds that a status change waits for others to share its write, and at least between two writes of a pool's status."""
