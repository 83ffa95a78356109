"""Deadlines: a moment of the monotonic clock, or None for no limit."""

from __future__ import annotations

import time

from sandpool.sdk.errors import TimedOut

Deadline = float | None


def after(seconds: float | None) -> Deadline:
    return None if seconds is None else time.monotonic() + seconds


def left(deadline: Deadline, what: str = "no answer") -> float | None:
    """Seconds until then; TimedOut if there are none."""
    if deadline is None:
        return None
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimedOut(f"{what} within the time allowed")
    return seconds


def sooner(one: Deadline, other: Deadline) -> Deadline:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
