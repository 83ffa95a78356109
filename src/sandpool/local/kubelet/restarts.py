"""When a container that has ended is started again. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandpool.local.backends.base import Exit, RunningContainer
from sandpool.local.kubelet.options import Pace

_MOST_DOUBLINGS = 16


def restarts(policy: str, end: Exit) -> bool:
    """Whether a container that ended like this is to run again."""
    return policy == "Always" or (policy == "OnFailure" and end.code != 0)


def delay(container: RunningContainer, end: Exit, pace: Pace) -> float:
    """Seconds between this end and the next start. The first restart is at once, like one after a long good run."""
    ran = (end.at - end.started_at).total_seconds() if end.started_at is not None else 0.0
    if container.restarts == 0 or ran >= pace.forgiven:
        return 0.0
    return min(pace.longest_restart, pace.first_restart * 2.0 ** min(container.restarts - 1, _MOST_DOUBLINGS))


def due_at(container: RunningContainer, end: Exit, pace: Pace) -> datetime:
    return end.at + timedelta(seconds=delay(container, end, pace))
