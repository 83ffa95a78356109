"""When a container that has exited is restarted, and what a restart of sandpool means for a pod. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from sandpool.node.backend import SANDBOX_LOST, ContainerStatus, Exit, PodStatus, Started, Waiting, WorkloadSpec

_MOST_DOUBLINGS = 16
SANDPOOL_RESTARTED = "SandpoolRestarted"
LOST = 255
"""The exit code of a container whose exit was not observed."""


class RestartPace(Protocol):
    """Seconds; the kubelet's options have them."""

    @property
    def first_restart(self) -> float:
        """Before the second restart of a container, doubling; the first one is immediate."""
        ...

    @property
    def longest_restart(self) -> float: ...

    @property
    def forgiven(self) -> float:
        """A container that ran this long starts again without a delay."""
        ...


def policy_of(spec: WorkloadSpec, name: str) -> str:
    """The restart policy of a container: sidecars always, other init containers until they have succeeded."""
    for init in spec.init_containers:
        if init.name == name:
            return "Always" if init.sidecar else "Never" if spec.restart_policy == "Never" else "OnFailure"
    return spec.restart_policy


def restarts(policy: str, end: Exit) -> bool:
    """Whether a container that exited like this is restarted."""
    return policy == "Always" or (policy == "OnFailure" and end.code != 0)


def delay(container: ContainerStatus, end: Exit, pace: RestartPace) -> float:
    """Seconds between this exit and the next start. The first restart is immediate; so is one after a long run, and one after an
    exit that the container did not cause, which is not counted later either."""
    ran = (end.at - end.started_at).total_seconds() if end.started_at is not None else 0.0
    crashes = container.restarts - container.uncounted
    if crashes <= 0 or ran >= pace.forgiven or end.reason == SANDBOX_LOST:
        return 0.0
    return min(pace.longest_restart, pace.first_restart * 2.0 ** min(crashes - 1, _MOST_DOUBLINGS))


def due_at(container: ContainerStatus, end: Exit, pace: RestartPace) -> datetime:
    return end.at + timedelta(seconds=delay(container, end, pace))


def after_restart(was: PodStatus, spec: WorkloadSpec, now: datetime) -> PodStatus:
    """The status with which a pod starts again whose processes ended with an earlier sandpool: what ran, or was to be restarted,
    has one restart more. Init containers run again without being counted."""
    sidecars = {init.name for init in spec.init_containers if init.sidecar}
    init = tuple(
        _again(one, "Always", now) if one.name in sidecars else replace(one, state=Waiting("PodInitializing"))
        for one in was.init
    )
    containers = tuple(_again(one, spec.restart_policy, now) for one in was.containers)
    return replace(was, init=init, containers=containers, stopping=False, paused=False)


def _again(container: ContainerStatus, policy: str, now: datetime) -> ContainerStatus:
    uncounted = container.uncounted
    match container.state:
        case Started(at):
            end = lost(at, now)
            uncounted = (
                container.restarts + 1
            )  # it was running, and which earlier exits it caused itself is no longer known
        case Exit() as end if restarts(policy, end):
            pass
        case _:
            return container
    return replace(container, state=Waiting(), restarts=container.restarts + 1, last=end, uncounted=uncounted)


def all_lost(was: PodStatus, now: datetime) -> PodStatus:
    """The status of a pod whose processes ended with an earlier sandpool."""
    return replace(was, init=_lost(was.init, now), containers=_lost(was.containers, now))


def _lost(known: tuple[ContainerStatus, ...], now: datetime) -> tuple[ContainerStatus, ...]:
    return tuple(
        replace(one, state=lost(one.state.at, now)) if isinstance(one.state, Started) else one for one in known
    )


def lost(started_at: datetime | None, now: datetime) -> Exit:
    words = "sandpool was restarted, and the container's processes ended with it"
    return Exit(LOST, now, started_at, reason=SANDPOOL_RESTARTED, message=words)
