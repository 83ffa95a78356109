"""Slows a pool's refill down: the hold, the token bucket and the pause. Pure: states in, states out.

The hold waits after a loss, so that refilling does not compete with a burst of claims. The tokens limit the rate. Both are
off by default. The pause is always on: it waits after members that failed to start. None of them delays a delete.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sandpool.base.backoff import LONGEST, RESPITE, doubled


@dataclass(frozen=True, slots=True)
class Hold:
    """Refill waits until this time after a loss."""

    seen: int = 0  # losses accounted for so far
    began: datetime | None = None
    until: datetime | None = None


def next_hold(hold: Hold | None, losses: int, *, full: bool, delay: float, longest: float, now: datetime) -> Hold:
    """The hold after this reconcile. The first one never holds: a pool that is filled for the first time, or after a restart, has lost nothing."""
    if hold is None or delay <= 0 or full:
        return Hold(losses)
    if losses > hold.seen:
        began = hold.began or now
        latest = began + timedelta(seconds=delay * max(1.0, longest))
        return Hold(losses, began, min(now + timedelta(seconds=delay), latest))
    return hold if held(hold, now) else Hold(losses)


def held(hold: Hold | Pause, now: datetime) -> bool:
    if hold.until is None or (hold.began is not None and now < hold.began):  # the clock was set back
        return False
    return now < hold.until


@dataclass(frozen=True, slots=True)
class Pause:
    """Refill waits after members that failed to start, longer each time."""

    seen: int = 0  # members lost before they were ready, accounted for so far
    times: int = 0  # how often that happened recently
    began: datetime | None = None
    until: datetime | None = None


def next_pause(pause: Pause | None, lost_unready: int, first: float, now: datetime) -> Pause:
    """The pause after members that others deleted before they were ready: the pool may be gone although the cache still shows it, or another
    controller disagrees. The first time costs nothing; repetitions wait longer each time."""
    pause = pause or Pause()
    if lost_unready <= pause.seen:
        return pause
    recent = pause.began is not None and now - pause.began <= timedelta(seconds=RESPITE)
    times = pause.times + 1 if recent else 0
    delay = doubled(first, times - 1, LONGEST) if times else 0.0
    return Pause(lost_unready, times, now, now + timedelta(seconds=delay))


@dataclass(frozen=True, slots=True)
class Tokens:
    """A token bucket that limits the rate of creation. Unlike `base.rate_limit.TokenBucket` it is a value, because the plan is pure, and it
    reckons by the wall clock, so it has to survive a clock that is set back."""

    left: float
    at: datetime


def filled(tokens: Tokens | None, rate: float, now: datetime) -> Tokens:
    """The bucket refilled up to now. A new one is full; it holds one second's worth, and at least one."""
    most = max(1.0, rate)
    if tokens is None:
        return Tokens(most, now)
    passed = (now - tokens.at).total_seconds()
    if passed <= 0:  # also if the clock was set back
        return Tokens(tokens.left, now)
    # Datetimes are whole microseconds: the wait for a token, times the rate, may fall slightly short of one.
    return Tokens(min(most, tokens.left + passed * rate + 1e-6 * most), now)


def spent(tokens: Tokens, count: int) -> Tokens:
    return Tokens(tokens.left - count, tokens.at)


def next_token(tokens: Tokens, rate: float) -> datetime:
    """When there is one more whole token than now."""
    missing = max(0.0, 1.0 - tokens.left)
    return tokens.at + timedelta(seconds=missing / rate)
