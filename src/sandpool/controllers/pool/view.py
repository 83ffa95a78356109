"""What the decision about one pool may depend on. The roster is live: it is read before anything else happens, never later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from sandpool.controllers.pool.pace import Hold, Pause, Tokens
from sandpool.controllers.pool.roster import Roster
from sandpool.model.metadata import Revision, Uid
from sandpool.model.percent import Bounds, PercentError, rolling_bounds
from sandpool.model.pool import DEFAULT_ROLLING, RollingUpdate, SandboxWarmPool, UpdateStrategyType
from sandpool.model.reasons import Reason
from sandpool.model.template import SandboxTemplate


class Obstacle(NamedTuple):
    """Why no member can be made now: a reason for the condition, and a sentence."""

    reason: Reason
    message: str


class Orphan(NamedTuple):
    """A sandbox that nobody controls and that bears the pool's label."""

    name: str
    uid: Uid
    revision: Revision
    stale: bool


@dataclass(frozen=True, slots=True)
class PoolView:
    pool: SandboxWarmPool
    template: SandboxTemplate | None
    roster: Roster
    obstacle: Obstacle | None = None
    unsettled: int = 0  # creates that may have happened
    reserved: int = 0  # members that claims are about to take
    orphans: tuple[Orphan, ...] = ()
    losses: int = 0
    in_vain: int = 0  # members that others deleted before they were ready, ever
    pause: Pause | None = None
    hold: Hold | None = None
    tokens: Tokens | None = None
    mended: Mapping[Uid, datetime] = field(default_factory=dict)  # whose labels or owner were just put back: rest until
    failed: str = ""  # why members could not be created
    struck: str = ""  # a member that was given up, as long as none has become ready since

    @property
    def replicas(self) -> int:
        return self.pool.spec.replicas

    @property
    def strategy(self) -> UpdateStrategyType:
        return self.pool.spec.strategy

    @property
    def population(self) -> int:
        """Everything that holds capacity. Leaving members do: otherwise a slow delete would become a second pool."""
        return len(self.roster) + self.unsettled + sum(not orphan.stale for orphan in self.orphans)

    @property
    def bounds(self) -> Bounds:
        """How far a rollout may go; nothing for strategies that have no bounds."""
        if self.strategy is not UpdateStrategyType.ROLLING_UPDATE:
            return Bounds(0, 0)
        strategy = self.pool.spec.update_strategy
        asked = (strategy.rolling_update if strategy is not None else None) or RollingUpdate()
        try:
            return rolling_bounds(asked.max_unavailable, asked.max_surge, self.replicas)
        except PercentError:  # the schema refuses such text, so it was written past the schema
            return rolling_bounds(DEFAULT_ROLLING, DEFAULT_ROLLING, self.replicas)
