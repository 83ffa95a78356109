"""All that the decision about one pool may depend on. The roster is live: it must be read before the next await."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from sandpool.controllers.pool.pace import Hold, Pause, Tokens
from sandpool.controllers.pool.roster import Roster
from sandpool.model.metadata import Revision, Uid
from sandpool.model.pool import (
    DEFAULT_ROLLING,
    Bounds,
    PercentError,
    RollingUpdate,
    SandboxWarmPool,
    UpdateStrategyType,
    rolling_bounds,
)
from sandpool.model.reasons import Reason
from sandpool.model.template import SandboxTemplate


class Obstacle(NamedTuple):
    """Why no member can be created now: reason and message of the condition."""

    reason: Reason
    message: str


class Orphan(NamedTuple):
    """A sandbox without a controlling owner that has the pool's label."""

    name: str
    uid: Uid
    revision: Revision
    stale: bool


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool with its members, template and obstacles."""

    pool: SandboxWarmPool
    template: SandboxTemplate | None
    roster: Roster
    obstacle: Obstacle | None = None
    unsettled: int = 0  # creates that may have happened
    reserved: int = 0  # members that claims are about to take
    orphans: tuple[Orphan, ...] = ()
    losses: int = 0
    lost_unready: int = 0  # members that others deleted before they were ready, ever
    pause: Pause | None = None
    hold: Hold | None = None
    tokens: Tokens | None = None
    repaired: Mapping[Uid, datetime] = field(
        default_factory=dict
    )  # repaired members, and until when they are left alone
    failed: str = ""  # why members could not be created
    given_up: str = ""  # the last member that was replaced because it never became ready, until one does

    @property
    def replicas(self) -> int:
        return self.pool.spec.replicas

    @property
    def strategy(self) -> UpdateStrategyType:
        return self.pool.spec.strategy

    @property
    def population(self) -> int:
        """Everything that uses capacity, leaving members included: otherwise slow deletes would let a pool exceed its size."""
        return len(self.roster) + self.unsettled + sum(not orphan.stale for orphan in self.orphans)

    @property
    def bounds(self) -> Bounds:
        """Surge and unavailable of a rollout; zero for other strategies."""
        if self.strategy is not UpdateStrategyType.ROLLING_UPDATE:
            return Bounds(0, 0)
        strategy = self.pool.spec.update_strategy
        asked = (strategy.rolling_update if strategy is not None else None) or RollingUpdate()
        try:
            return rolling_bounds(asked.max_unavailable, asked.max_surge, self.replicas)
        except PercentError:  # the schema rejects such values, so it was written by a server without it
            return rolling_bounds(DEFAULT_ROLLING, DEFAULT_ROLLING, self.replicas)
