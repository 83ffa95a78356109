"""What the assigner is told and what it answers. Values only, and the one rule about who may be offered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from sandpool.model.metadata import Key, Uid
from sandpool.model.pool import UpdateStrategyType

Age = tuple[object, ...]
"""What sorts claims by age, the oldest first. An empty one is older than any."""


class Claimant(NamedTuple):
    """A claim that asks. The key is for whoever wakes it, the age for its place in line; only the uid identifies it."""

    uid: Uid
    key: Key
    age: Age = ()


Woken = tuple[Claimant, ...]
"""Claims whose answer may have changed: they should ask again, now."""


@dataclass(frozen=True, slots=True)
class Member:
    """A sandbox that a pool controls."""

    uid: Uid
    key: Key
    pool: Uid
    node: str = ""
    ready: bool = False
    stale: bool = False  # not what the pool's template would make today
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Pool:
    uid: Uid
    key: Key
    strategy: UpdateStrategyType = UpdateStrategyType.ON_REPLENISH
    leaving: bool = False
    template_known: bool = True  # the template that it refers to exists
    replicas: int = 1  # that it wants


class Standing(StrEnum):
    """What a member is good for now."""

    READY = "ready"
    LAST_CHOICE = "last choice"  # ready, but only for when nothing better is
    WARMING = "warming"  # worth waiting for
    WITHHELD = "withheld"  # never offered


def standing(member: Member, pool: Pool | None, draining: bool) -> Standing:
    """OnReplenish hands out whatever runs, in order. Recreate hands out only what follows the template, RollingUpdate that
    first; without a template neither hands out anything, because nobody can say what follows it."""
    if pool is None or pool.leaving or member.leaving or draining or member.key.namespace != pool.key.namespace:
        return Standing.WITHHELD
    last = False
    if pool.strategy is not UpdateStrategyType.ON_REPLENISH:
        if not pool.template_known or (member.stale and pool.strategy is UpdateStrategyType.RECREATE):
            return Standing.WITHHELD
        last = member.stale
    if not member.ready:
        return Standing.WARMING
    return Standing.LAST_CHOICE if last else Standing.READY


class Why(StrEnum):
    """Why no warm member can be had."""

    NO_POOL = "the pool is unknown, being deleted or in another namespace"
    NO_MEMBERS = "the pool keeps no members"
    NONE_WARMING = "no member is ready, and nobody can say when one will be"
    SOONER = "no member is ready, and none is expected sooner"
    TOO_LATE = "no member became ready in time"


@dataclass(frozen=True, slots=True)
class Take:
    """This member is reserved for the claim until commit, release or forget."""

    member: Member
    woken: Woken = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """The claim stands in line and will be woken; it should ask again at `until` at the latest."""

    until: datetime
    woken: Woken = ()


@dataclass(frozen=True, slots=True)
class Cold:
    """Start a sandbox of the claim's own. It keeps its place in line, if there is one: a member that is ready first is still its own."""

    why: Why
    woken: Woken = ()


Decision = Take | Wait | Cold


@dataclass(frozen=True, slots=True)
class Counts:
    ready: int = 0
    warming: int = 0
    reserved: int = 0
    waiting: int = 0
