"""How a reconcile can end, and what each end leads to. Pure: the controller acts on these values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sandpool.kube.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    RequestTooLarge,
    TooManyRequests,
    Unreachable,
)
from sandpool.loop.errors import Terminal, Unobserved

ENDING = "NamespaceTerminating"
"""The cause that a server names when it refuses to create something in a namespace that is being deleted."""


class Arm(StrEnum):
    """The values of the label `outcome` of the metric sandpool_reconciles."""

    DONE = "done"  # nothing more to do until something changes
    AGAIN = "again"  # the reconcile named the moment to look again
    UNOBSERVED = "unobserved"  # again when the cache has reached the revision
    CONFLICT = "conflict"  # again at once, not counted as a failure
    TERMINAL = "terminal"  # not again before something changes
    THROTTLED = "throttled"  # again after Retry-After
    TIMEOUT = "timeout"  # it took too long: again after a backoff
    ERROR = "error"  # anything else: again after a backoff


@dataclass(frozen=True, slots=True)
class Done:
    """The reconcile succeeded. `again_at` or `again_after` (seconds): when to reconcile again anyway.
    `afterwards`: the urgent part is done, and something is left that nobody waits for. The key is queued again with background priority, and that
    is still the same reconcile: one history entry, one count. `background`: nobody waits for the next reconcile."""

    again_at: datetime | None = None
    again_after: float | None = None
    afterwards: bool = False
    background: bool = False

    def delay(self, now: datetime) -> float | None:
        """Seconds until the earlier of the two; None: not before something changes."""
        delays = [] if self.again_after is None else [self.again_after]
        if self.again_at is not None:
            delays.append((self.again_at - now).total_seconds())
        return max(0.0, min(delays)) if delays else None


class OutOfTime(Exception):
    """A reconcile exceeded the controller's time limit."""


_GRAVITY = (Arm.UNOBSERVED, Arm.CONFLICT, Arm.THROTTLED, Arm.TERMINAL, Arm.TIMEOUT, Arm.ERROR)


def classify(error: BaseException) -> tuple[Arm, BaseException]:
    """Which arm an error takes, and which error decided it. Of several at once (an ExceptionGroup) the gravest decides;
    Terminal only if nothing that could be retried stands beside it."""
    found = sorted(((_arm(leaf), leaf) for leaf in _leaves(error)), key=lambda pair: _GRAVITY.index(pair[0]))
    if any(arm is not Arm.TERMINAL for arm, _ in found):
        found = [pair for pair in found if pair[0] is not Arm.TERMINAL]
    arm, leaf = found[-1]
    return arm, (error if arm is Arm.ERROR else leaf)


def refuses(error: BaseException) -> bool:
    """Whether the server rejected the request itself: a policy, a quota, a webhook, or an invalid object. A patch whose test
    failed (Invalid without causes) is no refusal."""
    return isinstance(error, (Forbidden, BadRequest, RequestTooLarge)) or (
        isinstance(error, Invalid) and bool(error.causes)
    )


def unavailable(error: BaseException) -> BaseException | None:
    """The error, if all failures mean that the server is unreachable or broken; None if anything else failed."""
    failures = [leaf for leaf in _leaves(error) if _arm(leaf) is Arm.ERROR]
    if all(isinstance(leaf, Unreachable) or (isinstance(leaf, ApiError) and leaf.code >= 500) for leaf in failures):
        return next(iter(failures), None)
    return None


def _arm(error: BaseException) -> Arm:
    match error:
        case Unobserved():
            return Arm.UNOBSERVED
        case Conflict():
            return Arm.CONFLICT
        case Terminal():
            return Arm.TERMINAL
        case Forbidden() if any(cause.reason == ENDING for cause in error.causes):
            return Arm.TERMINAL  # the object would be deleted with its namespace
        case TooManyRequests():
            return Arm.THROTTLED
        case OutOfTime():
            return Arm.TIMEOUT
        case _:
            return Arm.ERROR


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def raise_all(errors: Sequence[Exception]) -> None:
    """Ends a reconcile whose steps went on after a failure: raises the error, or a group of several, if there is any."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup("several steps failed", errors)
