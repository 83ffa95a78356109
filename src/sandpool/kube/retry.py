"""When to retry a call: only if it was certainly not processed, a few times, for a short while. Pure.

A server that is busy (429) says when to retry; a connection that was never made is retried with growing pauses. A
timeout or a lost answer is never retried here: the caller must first check whether the call took effect.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandpool.base.backoff import doubled
from sandpool.base.errors import SandpoolError
from sandpool.kube.errors import Refused, TooManyRequests, Untrusted


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and for how long a call is retried."""

    attempts: int = 6  # in all
    budget: float = 10.0  # seconds, from the first attempt to the start of the last
    first: float = 0.1  # the first pause after a refused connection
    longest: float = 2.0
    throttled: float = 0.0  # the budget after 429, however many attempts that are; 0: as after anything else


def pause(policy: RetryPolicy, error: SandpoolError, attempt: int, elapsed: float, draw: float) -> float | None:
    """Seconds to wait after attempt number `attempt` (from 1) failed, or None to give up. `draw` is from [0, 1)."""
    lasting = isinstance(error, TooManyRequests) and policy.throttled > 0
    if attempt >= policy.attempts and not lasting:
        return None
    backoff = doubled(policy.first, attempt - 1, policy.longest)
    if isinstance(error, TooManyRequests):
        # Never before Retry-After; a little later, so that clients refused together do not come back together.
        asked = float(max(0, error.retry_after)) if error.retry_after is not None else 0.0
        wait = asked + backoff * draw if asked else backoff * (0.5 + draw / 2)
    elif isinstance(error, Refused) and not isinstance(error, Untrusted):
        wait = backoff * (0.5 + draw / 2)
    else:
        return None
    return wait if elapsed + wait <= (policy.throttled if lasting else policy.budget) else None
