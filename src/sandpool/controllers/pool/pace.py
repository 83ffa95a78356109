"""How fast a pool refills, if somebody wants it slower than at once. Pure: states in, states out.

The hold waits after a loss, so that refilling does not compete with a burst of claims. The tokens limit the rate. Both are
off unless chosen. The pause is never off: it waits after members that were made in vain. None keeps anything from being deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

RESPITE = timedelta(seconds=30)
"""What happened longer ago than this, and not again since, counts as over."""
LONGEST_PAUSE = 16.0


@dataclass(frozen=True, slots=True)
class Hold:
    seen: int = 0  # losses that were looked at
    began: datetime | None = None
    until: datetime | None = None


def next_hold(hold: Hold | None, losses: int, *, full: bool, delay: float, longest: float, now: datetime) -> Hold:
    """The first look never holds: a pool that is filled for the first time, or after a restart, has lost nothing."""
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
    seen: int = 0  # members made in vain that were looked at
    times: int = 0  # how often that happened lately
    began: datetime | None = None
    until: datetime | None = None


def next_pause(pause: Pause | None, in_vain: int, first: float, now: datetime) -> Pause:
    """Whatever is made vanishes again: a pool that is gone and that we still see, or somebody else who has another idea of it.
    Once is nothing; again and again must not become a race."""
    pause = pause or Pause()
    if in_vain <= pause.seen:
        return pause
    recent = pause.began is not None and now - pause.began <= RESPITE
    times = pause.times + 1 if recent else 0
    delay = min(first * 2.0 ** (times - 1), LONGEST_PAUSE) if times else 0.0
    return Pause(in_vain, times, now, now + timedelta(seconds=delay))


@dataclass(frozen=True, slots=True)
class Tokens:
    left: float
    at: datetime


def filled(tokens: Tokens | None, rate: float, now: datetime) -> Tokens:
    """A new bucket is full; it holds what a second brings, and at least one."""
    most = max(1.0, rate)
    if tokens is None:
        return Tokens(most, now)
    passed = (now - tokens.at).total_seconds()
    if passed <= 0:  # also if the clock was set back
        return Tokens(tokens.left, now)
    # Moments are whole microseconds: the wait for a token, times the rate, may fall short of one by a hair.
    return Tokens(min(most, tokens.left + passed * rate + 1e-6 * most), now)


def spent(tokens: Tokens, count: int) -> Tokens:
    return Tokens(tokens.left - count, tokens.at)


def next_token(tokens: Tokens, rate: float) -> datetime:
    """When there is one more whole token than now."""
    missing = max(0.0, 1.0 - tokens.left)
    return tokens.at + timedelta(seconds=missing / rate)
