"""Which changes of a status are worth an Event: what a person would want to read in `kubectl describe`, and no more. Pure."""

from __future__ import annotations

from typing import NamedTuple

from sandpool.loop.events import Kind
from sandpool.model.conditions import find, is_true
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import SandboxStatus

RESUMED = "SandboxResumed"


class News(NamedTuple):
    kind: Kind
    reason: str
    message: str
    action: str = "Reconciling"


def news(old: SandboxStatus, new: SandboxStatus) -> list[News]:
    told: list[News] = []
    before, after = find(old.conditions, Type.READY), find(new.conditions, Type.READY)
    if after is not None and (before is None or before.reason != after.reason):
        if after.reason == Reason.MULTIPLE_PODS:
            told.append(News(Kind.WARNING, after.reason, after.message))
        elif after.reason == Reason.SANDBOX_EXPIRED:
            told.append(News(Kind.NORMAL, after.reason, after.message, "Expiring"))
    healthy = find(new.conditions, Type.HEALTHY)
    if healthy is not None and find(old.conditions, Type.HEALTHY) is None:
        told.append(News(Kind.WARNING, healthy.reason, healthy.message))
    was, is_ = is_true(old.conditions, Type.SUSPENDED), is_true(new.conditions, Type.SUSPENDED)
    if is_ and not was:
        told.append(
            News(Kind.NORMAL, Reason.SANDBOX_SUSPENDED.value, "The pod is gone, storage and Service stay", "Suspending")
        )
    elif was and not is_:
        told.append(News(Kind.NORMAL, RESUMED, "The sandbox is meant to run again", "Resuming"))
    return told
