"""One member of a pool, reduced to what its pool decides by. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum
from functools import lru_cache

import msgspec

from sandpool.model import labels
from sandpool.model.conditions import Condition, Truth, find
from sandpool.model.labels import LaunchType
from sandpool.model.metadata import NO_REVISION, Revision, Uid
from sandpool.model.names import name_hash
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox

LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
UNSCHEDULABLE = "Unschedulable"


class Rank(IntEnum):
    """Whom a pool can spare first. What is not ready goes before what is, what is stale before what is fresh."""

    STALE_UNPLACED = 0
    STALE_UNREADY = 1
    FRESH_UNPLACED = 2
    FRESH_UNREADY = 3
    STALE_READY = 4
    FRESH_READY = 5


STALE_UNREADY = (Rank.STALE_UNPLACED, Rank.STALE_UNREADY)
FRESH_UNREADY = (Rank.FRESH_UNPLACED, Rank.FRESH_UNREADY)


class Member(msgspec.Struct, frozen=True, gc=False):
    """`since`: from when on it could have become Ready and is not. `placed`: the scheduler did not say that there is no node.

    A struct that the cycle collector does not see: a pool has thousands, and each step of one makes another."""

    uid: Uid
    name: str
    revision: Revision = NO_REVISION
    created: datetime = LONG_AGO
    since: datetime = LONG_AGO
    ready: bool = False
    placed: bool = True
    stale: bool = False  # not what the pool's template would make today
    leaving: bool = False
    marked: bool = True  # has the labels of an unclaimed member
    said: str = ""  # why it is not Ready, in the sandbox's own words
    failing: bool = False  # because something went wrong, not because it takes its time

    @property
    def rank(self) -> Rank:
        if self.ready:
            return Rank.STALE_READY if self.stale else Rank.FRESH_READY
        if not self.placed:
            return Rank.STALE_UNPLACED if self.stale else Rank.FRESH_UNPLACED
        return Rank.STALE_UNREADY if self.stale else Rank.FRESH_UNREADY


def read_member(sandbox: Sandbox, pool: str, *, stale: bool) -> Member:
    """The sandbox as a member of the pool of that name, which controls it."""
    meta, conditions = sandbox.metadata, sandbox.status.conditions
    ready, scheduled = find(conditions, Type.READY), find(conditions, Type.POD_SCHEDULED)
    created = meta.creation_timestamp or LONG_AGO
    since, placed, said = created, True, "it has not reported yet"
    failing = False
    if ready is not None:
        since = max(since, ready.last_transition_time or created)
        said = ready.message or ready.reason
        if not ready.true:
            held_up = _held_up(conditions)
            failing, said = bool(held_up) or ready.reason == Reason.RECONCILER_ERROR, held_up or said
    if scheduled is not None:
        placed = not (scheduled.status == Truth.FALSE and scheduled.reason == UNSCHEDULABLE)
        if scheduled.true:  # it could not start before it had a node
            since = max(since, scheduled.last_transition_time or created)
        if not placed:
            said = scheduled.message or scheduled.reason
    return Member(
        uid=meta.uid,
        name=meta.name,
        revision=meta.revision,
        created=created,
        since=since,
        ready=ready is not None and ready.true,
        placed=placed,
        stale=stale,
        leaving=meta.leaving,
        marked=not missing_marks(sandbox, pool),
        said=said,
        failing=failing,
    )


def _held_up(conditions: tuple[Condition, ...]) -> str:
    """Why its pod does not start, where that is known; empty: it takes its time."""
    healthy = find(conditions, Type.HEALTHY)
    return healthy.message if healthy is not None and healthy.reason == Reason.POD_NOT_STARTING else ""


def missing_marks(sandbox: Sandbox, pool: str) -> dict[str, str]:
    """Labels that a member of the pool should have and has not: without them nobody can claim it."""
    present = sandbox.metadata.labels
    wanted = {labels.LAUNCH_TYPE: LaunchType.WARM.value, labels.WARM_POOL: _mark(pool)}
    made_from = sandbox.metadata.annotations.get(labels.TEMPLATE_REF)
    if made_from and labels.TEMPLATE_REF_HASH not in present:
        wanted[labels.TEMPLATE_REF_HASH] = name_hash(made_from)
    return {key: value for key, value in wanted.items() if present.get(key) != value}


@lru_cache(maxsize=1024)
def _mark(pool: str) -> str:
    """Every step of every member asks for it."""
    return name_hash(pool)
