"""What is worth an Event on a pod. Pure: how it was and how it is, in; news, out.

Trouble is always told. The steps of a start that goes well are `routine`: the status shows them, and a pool that fills must not
cost several writes a pod, so they are told only where the operator asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from sandpool.loop.events import Kind
from sandpool.node.backend import Exit, Running, RunningContainer, Started, Waiting
from sandpool.node.kubelet.bind import DISK_PRESSURE
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.pods import Json, NodePod
from sandpool.node.kubelet.probe_runner import Answer
from sandpool.node.kubelet.probe_state import Result, Which
from sandpool.node.kubelet.restarts import SANDPOOL_RESTARTED, delay, policy_of, restarts
from sandpool.node.kubelet.status import EVICTED


class PodEvent(StrEnum):
    """Kubernetes' words. docs/reference/pods.md explains each."""

    SCHEDULED = "Scheduled"
    FAILED_SCHEDULING = "FailedScheduling"
    PULLING = "Pulling"
    PULLED = "Pulled"
    CREATED = "Created"
    STARTED = "Started"
    KILLING = "Killing"
    BACK_OFF = "BackOff"
    UNHEALTHY = "Unhealthy"
    FAILED = "Failed"
    FAILED_MOUNT = "FailedMount"
    FAILED_SANDBOX = "FailedCreatePodSandBox"
    FAILED_POST_START = "FailedPostStartHook"
    FAILED_PRE_STOP = "FailedPreStopHook"
    PULL_SECRET = "FailedToRetrieveImagePullSecret"  # noqa: S105
    OOM_KILLED = "OOMKilled"
    EVICTED = "Evicted"
    DISK_PRESSURE = "NodeHasDiskPressure"
    RESTARTED = "SandpoolRestarted"


class News(NamedTuple):
    kind: Kind
    reason: PodEvent
    message: str
    routine: bool = False


PULLING = "Pulling image"
"""How the message of a container begins that waits for its image."""
ON_ITS_WAY = ("", "ContainerCreating", "PodInitializing")
"""Reasons of a container that waits and is in no trouble."""
_PULLS = ("ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable")


def started_news(pod: NodePod, before: Running | None, after: Running | None, pace: Pace) -> list[News]:
    """What happened to its containers since. Of a pod that is over all was told before that was stored."""
    if after is None or before is after or pod.finished:
        return []
    was = {container.name: container for container in (*before.init, *before.containers)} if before is not None else {}
    found: list[News] = []
    for container in (*after.init, *after.containers):
        old = was.get(container.name)
        if old is not container and (old is None or old != container):
            found += _of_container(pod, old, container, pace)
    return found


def _of_container(pod: NodePod, old: RunningContainer | None, new: RunningContainer, pace: Pace) -> Iterator[News]:
    before = old.state if old is not None else None
    image = next((one.image for one in pod.spec.all_containers if one.name == new.name), "")
    if _pulling(before) and not _pulling(new.state) and not _held_up(new.state):
        yield News(Kind.NORMAL, PodEvent.PULLED, f'Successfully pulled image "{image}"')
    match new.state:
        case Waiting(reason, message) if before != new.state and not (_pulling(before) and _pulling(new.state)):
            yield from _of_waiting(reason, message, image)
        case Started(at) if not isinstance(before, Started) or before.at != at:
            yield News(Kind.NORMAL, PodEvent.CREATED, f"Created container {new.name}", routine=True)
            yield News(Kind.NORMAL, PodEvent.STARTED, f"Started container {new.name}", routine=True)
        case Exit() as end if end != before:
            yield from _of_end(pod, new, end, pace)


def _of_waiting(reason: str, message: str, image: str) -> Iterator[News]:
    if reason in ON_ITS_WAY:
        if message.startswith(PULLING):
            yield News(Kind.NORMAL, PodEvent.PULLING, message)
    elif reason == "ImagePullBackOff":
        yield News(Kind.NORMAL, PodEvent.BACK_OFF, f'Back-off pulling image "{image}"')
    elif reason in _PULLS:
        yield News(Kind.WARNING, PodEvent.FAILED, f'Failed to pull image "{image}": {reason}: {message}')
    else:
        yield trouble_news(reason, message)


def _of_end(pod: NodePod, container: RunningContainer, end: Exit, pace: Pace) -> Iterator[News]:
    if end.reason == "OOMKilled":
        text = f"Container {container.name} used more memory than it may have; raise its limit, or make it use less"
        yield News(Kind.WARNING, PodEvent.OOM_KILLED, text)
    elif end.reason and end.code:
        yield News(Kind.WARNING, PodEvent.FAILED, f"Container {container.name}: {end.reason}: {end.message}")
    if restarts(policy_of(pod.spec, container.name), end) and delay(container, end, pace) > 0:
        meta = pod.metadata
        text = f"Back-off restarting failed container {container.name} in pod {meta.name}_{meta.namespace}({meta.uid})"
        yield News(Kind.WARNING, PodEvent.BACK_OFF, text)


def _pulling(state: object) -> bool:
    return isinstance(state, Waiting) and state.message.startswith(PULLING)


def _held_up(state: object) -> bool:
    return isinstance(state, Waiting) and state.reason not in ON_ITS_WAY


def trouble_news(reason: str, message: str) -> News:
    """The pod cannot be started."""
    if reason == PodEvent.FAILED_MOUNT:
        return News(Kind.WARNING, PodEvent.FAILED_MOUNT, message)
    if reason == PodEvent.FAILED_SANDBOX:
        return News(Kind.WARNING, PodEvent.FAILED_SANDBOX, f"Failed to create pod sandbox: {message}")
    return News(Kind.WARNING, PodEvent.FAILED, f"Error: {reason}: {message}")


def probe_news(container: str, which: Which, answer: Answer, doomed: bool) -> list[News]:
    if which is Which.POST_START:
        found = [News(Kind.WARNING, PodEvent.FAILED_POST_START, f"PostStartHook failed: {answer.text}")]
    else:
        how = "failed" if answer.result is Result.FAILURE else "errored"
        found = [News(Kind.WARNING, PodEvent.UNHEALTHY, f"{which} probe {how}: {answer.text}")]
    if doomed:
        what = "PostStartHook" if which is Which.POST_START else f"{which.lower()} probe"
        found.append(News(Kind.NORMAL, PodEvent.KILLING, f"Container {container} failed {what}, will be restarted"))
    return found


def published_news(pod: NodePod, fields: Json) -> list[News]:
    """What a status that was just written says for the first time."""
    if fields.get("reason") == SANDPOOL_RESTARTED:
        return [News(Kind.WARNING, PodEvent.RESTARTED, str(fields.get("message", "")))]
    if fields.get("reason") == EVICTED:
        return [News(Kind.WARNING, PodEvent.EVICTED, str(fields.get("message", "")))]
    for condition in fields.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return [News(Kind.WARNING, PodEvent.FAILED_SCHEDULING, condition.get("message", ""))]
    for shown in fields.get("containerStatuses") or ():
        waiting = (shown.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") == DISK_PRESSURE:
            return [News(Kind.WARNING, PodEvent.DISK_PRESSURE, waiting.get("message", ""))]
        if waiting.get("reason") == PodEvent.FAILED_SANDBOX:
            return [trouble_news(PodEvent.FAILED_SANDBOX, waiting.get("message", ""))]
    return []
