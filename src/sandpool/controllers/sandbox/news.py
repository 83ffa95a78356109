"""Which changes of a status are worth an Event: what a person would want to read in `kubectl describe`, and no more. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sandpool.loop.events import Kind
from sandpool.model.conditions import Condition, find, is_true
from sandpool.model.event_reasons import EventReason
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import SandboxStatus


class News(NamedTuple):
    reason: EventReason
    message: str
    action: str = "Reconciling"

    @property
    def kind(self) -> Kind:
        return Kind.WARNING if self.reason.grave else Kind.NORMAL


_READY: dict[str, tuple[EventReason, str]] = {
    Reason.MULTIPLE_PODS: (EventReason.MULTIPLE_PODS, "Reconciling"),
    Reason.POD_FAILED: (EventReason.POD_FAILED, "Reconciling"),
    Reason.SANDBOX_EXPIRED: (EventReason.SANDBOX_EXPIRED, "Expiring"),
}
_BESIDE: dict[str, EventReason] = {
    Reason.CONFIGURATION_TROUBLE: EventReason.CONFIGURATION_TROUBLE,
    Reason.CONTROLLER_TROUBLE: EventReason.CONTROLLER_TROUBLE,
    Reason.POD_OUTDATED: EventReason.POD_OUTDATED,
}
"""Conditions that are there only while something is wrong. Of a pod that does not start its kubelet tells."""


def news(old: SandboxStatus, new: SandboxStatus) -> list[News]:
    return [*_of_ready(old, new), *_of_trouble(old, new), *_of_suspension(old, new)]


def _of_ready(old: SandboxStatus, new: SandboxStatus) -> Iterator[News]:
    before, after = find(old.conditions, Type.READY), find(new.conditions, Type.READY)
    if after is None or (before is not None and before.reason == after.reason):
        return
    told = _READY.get(after.reason)
    if told is not None:
        yield News(told[0], after.message, told[1])


def _of_trouble(old: SandboxStatus, new: SandboxStatus) -> Iterator[News]:
    for type_ in (Type.HEALTHY, Type.POD_UP_TO_DATE):
        before, after = find(old.conditions, type_), find(new.conditions, type_)
        if after is None or (event := _BESIDE.get(after.reason)) is None:
            continue
        if before is None or before.reason not in _BESIDE or _worse(before, after):
            yield News(event, after.message)


def _worse(before: Condition, after: Condition) -> bool:
    """Whether there is something new for a person to do. What is merely tried again says something new each time."""
    return after.reason == Reason.CONFIGURATION_TROUBLE and (before.reason, before.message) != (
        after.reason,
        after.message,
    )


def _of_suspension(old: SandboxStatus, new: SandboxStatus) -> Iterator[News]:
    was, is_ = is_true(old.conditions, Type.SUSPENDED), is_true(new.conditions, Type.SUSPENDED)
    if is_ and not was:
        yield News(
            EventReason.SANDBOX_SUSPENDED, "The pod is gone; persistent volumes and the Service stay", "Suspending"
        )
    elif was and not is_:
        yield News(EventReason.SANDBOX_RESUMED, "The sandbox is meant to run again", "Resuming")
