"""When a container that has ended is started again. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from sandpool.node.backend import SANDBOX_LOST, Exit, Running, RunningContainer, Started, Waiting
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.pods import NodePodSpec

_MOST_DOUBLINGS = 16
SANDPOOL_RESTARTED = "SandpoolRestarted"
LOST = 255
"""The exit code of a container of which nobody saw the end."""


def policy_of(spec: NodePodSpec, name: str) -> str:
    """The restart policy of a container: sidecars always, other init containers until they have succeeded."""
    for init in spec.init_containers:
        if init.name == name:
            return "Always" if init.sidecar else "Never" if spec.restart_policy == "Never" else "OnFailure"
    return spec.restart_policy


def restarts(policy: str, end: Exit) -> bool:
    """Whether a container that ended like this is to run again."""
    return policy == "Always" or (policy == "OnFailure" and end.code != 0)


def delay(container: RunningContainer, end: Exit, pace: Pace) -> float:
    """Seconds between this end and the next start. The first restart is at once, like one after a long good run, and like one
    after an end that was not the container's own doing; such ends are not counted later either."""
    ran = (end.at - end.started_at).total_seconds() if end.started_at is not None else 0.0
    crashes = container.restarts - container.spared
    if crashes <= 0 or ran >= pace.forgiven or end.reason == SANDBOX_LOST:
        return 0.0
    return min(pace.longest_restart, pace.first_restart * 2.0 ** min(crashes - 1, _MOST_DOUBLINGS))


def due_at(container: RunningContainer, end: Exit, pace: Pace) -> datetime:
    return end.at + timedelta(seconds=delay(container, end, pace))


def gone_on(was: Running, spec: NodePodSpec, now: datetime) -> Running:
    """A pod whose processes ended with an earlier sandpool, as it begins anew: what ran, or was to run again, counts one
    restart more. Init containers run again without being counted."""
    sidecars = {init.name for init in spec.init_containers if init.sidecar}
    init = tuple(
        _again(one, "Always", now) if one.name in sidecars else replace(one, state=Waiting("PodInitializing"))
        for one in was.init
    )
    containers = tuple(_again(one, spec.restart_policy, now) for one in was.containers)
    return replace(was, init=init, containers=containers, stopping=False, paused=False)


def _again(container: RunningContainer, policy: str, now: datetime) -> RunningContainer:
    spared = container.spared
    match container.state:
        case Started(at):
            end = lost(at, now)
            spared = (
                container.restarts + 1
            )  # it ran well, and nobody knows any more which of its ends were its own doing
        case Exit() as end if restarts(policy, end):
            pass
        case _:
            return container
    return replace(container, state=Waiting(), restarts=container.restarts + 1, last=end, spared=spared)


def all_lost(was: Running, now: datetime) -> Running:
    """The pod without processes, which ended with an earlier sandpool."""
    return replace(was, init=_lost(was.init, now), containers=_lost(was.containers, now))


def _lost(known: tuple[RunningContainer, ...], now: datetime) -> tuple[RunningContainer, ...]:
    return tuple(
        replace(one, state=lost(one.state.at, now)) if isinstance(one.state, Started) else one for one in known
    )


def lost(started_at: datetime | None, now: datetime) -> Exit:
    words = "sandpool was restarted, and the container's processes ended with it"
    return Exit(LOST, now, started_at, reason=SANDPOOL_RESTARTED, message=words)
