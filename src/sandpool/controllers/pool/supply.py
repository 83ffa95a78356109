"""How many members come now: as many as are missing, unless something holds them back. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.pace import Hold, Pause, Tokens, filled, held, next_hold, next_pause, next_token, spent
from sandpool.controllers.pool.view import PoolView
from sandpool.model.pool import UpdateStrategyType

_SOON = timedelta(seconds=0.1)
"""Until the next look while as many members warm as may: each that becomes ready makes room for another."""


@dataclass(frozen=True, slots=True)
class Supply:
    count: int
    more: bool  # a batch was not enough
    hold: Hold
    pause: Pause
    tokens: Tokens | None
    again_at: datetime | None  # when time alone lets more come


def supply(view: PoolView, options: Options, now: datetime) -> Supply:
    hold = _hold(view, options, now)
    pause = next_pause(view.pause, view.in_vain, options.moment, now)
    rate = options.refill_rate
    tokens = filled(view.tokens, rate, now) if rate > 0 else None
    wanted = missing(view) if view.obstacle is None else 0
    granted = 0 if held(hold, now) or held(pause, now) else wanted
    if tokens is not None:
        granted = min(granted, int(tokens.left))
    room = _room(view, options, now)
    crowded, granted = granted > room, min(granted, room)
    count = min(granted, options.batch)
    tokens = spent(tokens, count) if tokens is not None else None
    short = wanted > count
    again_at = _again_at(hold, pause, tokens, rate, now) if short else None
    if crowded:
        again_at = max(again_at or now, now + _SOON)
    return Supply(count, count < granted, hold, pause, tokens, again_at)


def missing(view: PoolView) -> int:
    """Everything that may exist counts. A rolling update makes no more fresh ones than are wanted in the end."""
    room = view.replicas + view.bounds.surge - view.population
    if view.strategy is not UpdateStrategyType.ROLLING_UPDATE:
        return max(0, room)
    fresh = view.population - len(view.roster) + view.roster.fresh
    return max(0, min(room, view.replicas - fresh))


def _room(view: PoolView, options: Options, now: datetime) -> int:
    """How many more may warm."""
    if not options.most_warming:
        return view.replicas + view.bounds.surge
    young = view.roster.warming(now - timedelta(seconds=options.young)) + view.unsettled
    return max(0, options.most_warming - young)


def _hold(view: PoolView, options: Options, now: datetime) -> Hold:
    full = view.roster.staying >= view.replicas
    return next_hold(
        view.hold, view.losses, full=full, delay=options.replenish_delay, longest=options.longest_hold, now=now
    )


def _again_at(hold: Hold, pause: Pause, tokens: Tokens | None, rate: float, now: datetime) -> datetime | None:
    waits = [one.until for one in (hold, pause) if one.until is not None and held(one, now)]
    if waits:
        return max(waits)
    return None if tokens is None else next_token(tokens, rate)
