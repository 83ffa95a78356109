"""Which changes of a pool's status are worth an Event. Pure: the state is in the conditions, so a restart tells nothing twice."""

from __future__ import annotations

from typing import NamedTuple

from sandpool.controllers.pool.status import trouble
from sandpool.loop.events import Kind
from sandpool.model.conditions import find
from sandpool.model.event_reasons import EventReason
from sandpool.model.pool import SandboxWarmPoolStatus
from sandpool.model.reasons import Reason, Type

NOT_PROGRESSING = EventReason.WARM_POOL_NOT_PROGRESSING
PROGRESSING = EventReason.WARM_POOL_PROGRESSING
_STANDSTILL = frozenset({Reason.NOT_PROGRESSING, Reason.CREATION_FAILED})


class News(NamedTuple):
    kind: Kind
    reason: str
    message: str
    action: str = "Reconciling"


def news(old: SandboxWarmPoolStatus, new: SandboxWarmPoolStatus) -> News | None:
    before, after = trouble(old), trouble(new)
    condition = find(new.conditions, Type.PROGRESSING)
    if before == after or condition is None:
        return None
    if after in _STANDSTILL:
        return News(Kind.WARNING, NOT_PROGRESSING, condition.message)
    if after == Reason.TEMPLATE_NOT_FOUND:
        return News(Kind.WARNING, EventReason.TEMPLATE_NOT_FOUND, condition.message)
    if before in _STANDSTILL and not after:
        return News(Kind.NORMAL, PROGRESSING, "Members are made and become ready again")
    return None
