"""What can be chosen about the pool controller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    batch: int = 300
    """Creates, and deletes, of one pool in one pass."""
    concurrency: int = 32
    """Writes of one pass that are under way at once. After a failure they start with one and double."""
    replenish_delay: float = 0.0
    """Seconds that refilling waits after members were taken; 0: not at all. Each further loss begins the wait anew."""
    longest_hold: float = 4.0
    """So many delays after the first loss refilling begins in any case: steady arrivals must not drain a pool."""
    refill_rate: float = 0.0
    """Creates a second of one pool; 0: no limit."""
    most_warming: int = 0
    """Young members of one pool that may be not Ready at once; 0: any number. Where pool, pods and claims share one machine, a whole pool that
    starts at once has its first member ready when nearly all are: claims that wait would be served in one late wave."""
    young: float = 10.0
    """Seconds that a member counts for that. Those that do not start must not keep a pool from its size."""
    readiness_grace: float = 300.0
    """Seconds that a member may be not Ready before it is replaced. One that finds no node is kept."""
    longest_grace: float = 3600.0
    """A broken template must not churn for ever: each generation of replacements waits twice as long, up to this."""
    mend_pause: float = 30.0
    """Seconds that a member that got its labels or its owner back is left alone if it loses them again: two who contradict
    each other at once would never rest."""
    refusal_pause: float = 300.0
    """Seconds until members that the server does not accept are tried again: nobody tells when a policy has changed."""
    moment: float = 1.0
    """Seconds that a status difference waits for company, and at least between two writes of a pool's status."""
