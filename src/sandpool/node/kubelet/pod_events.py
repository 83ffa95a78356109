"""Decides which changes of a pod deserve an Event, and emits them.

Events about failures are always emitted. The steps of a successful start are `routine`: the status shows them, and filling a pool must
not cost several writes per pod, so they are emitted only if the operator enables them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from sandpool.base.errors import NodeError
from sandpool.loop.events import Events, Kind
from sandpool.model.metadata import Uid
from sandpool.node.backend import ContainerStatus, Exit, PodStatus, Started, Waiting
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.placement import DISK_PRESSURE
from sandpool.node.kubelet.pods import NODE_PODS, Json, NodePod
from sandpool.node.kubelet.probe_runner import ProbeOutcome, ProbeTarget
from sandpool.node.kubelet.probe_state import Result, Which
from sandpool.node.kubelet.status import EVICTED, scheduled
from sandpool.node.pods.restarts import SANDPOOL_RESTARTED, delay, policy_of, restarts


class PodEvent(StrEnum):
    """The Event reasons, as in Kubernetes. docs/reference/pods.md explains each."""

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


class PodEventNote(NamedTuple):
    kind: Kind
    reason: PodEvent
    message: str
    routine: bool = False


PULLING = "Pulling image"
"""The beginning of the message of a container that waits for its image."""
ON_ITS_WAY = ("", "ContainerCreating", "PodInitializing")
"""Waiting reasons that are not a failure."""
_PULLS = ("ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable")


def container_events(pod: NodePod, before: PodStatus | None, after: PodStatus | None, pace: Pace) -> list[PodEventNote]:
    """Events for what happened to the containers in between. None for a finished pod, whose Events were emitted before its phase was stored."""
    if after is None or before is after or pod.finished:
        return []
    was = {container.name: container for container in (*before.init, *before.containers)} if before is not None else {}
    found: list[PodEventNote] = []
    for container in (*after.init, *after.containers):
        old = was.get(container.name)
        if old is not container and (old is None or old != container):
            found += _of_container(pod, old, container, pace)
    return found


def _of_container(
    pod: NodePod, old: ContainerStatus | None, new: ContainerStatus, pace: Pace
) -> Iterator[PodEventNote]:
    before = old.state if old is not None else None
    image = next((one.image for one in pod.spec.all_containers if one.name == new.name), "")
    if _pulling(before) and not _pulling(new.state) and not _held_up(new.state):
        yield PodEventNote(Kind.NORMAL, PodEvent.PULLED, f'Successfully pulled image "{image}"')
    match new.state:
        case Waiting(reason, message) if before != new.state and not (_pulling(before) and _pulling(new.state)):
            yield from _of_waiting(reason, message, image)
        case Started(at) if not isinstance(before, Started) or before.at != at:
            yield PodEventNote(Kind.NORMAL, PodEvent.CREATED, f"Created container {new.name}", routine=True)
            yield PodEventNote(Kind.NORMAL, PodEvent.STARTED, f"Started container {new.name}", routine=True)
        case Exit() as end if end != before:
            yield from _of_end(pod, new, end, pace)


def _of_waiting(reason: str, message: str, image: str) -> Iterator[PodEventNote]:
    if reason in ON_ITS_WAY:
        if message.startswith(PULLING):
            yield PodEventNote(Kind.NORMAL, PodEvent.PULLING, message)
    elif reason == "ImagePullBackOff":
        yield PodEventNote(Kind.NORMAL, PodEvent.BACK_OFF, f'Back-off pulling image "{image}"')
    elif reason in _PULLS:
        yield PodEventNote(Kind.WARNING, PodEvent.FAILED, f'Failed to pull image "{image}": {reason}: {message}')
    else:
        yield failure_event(reason, message)


def _of_end(pod: NodePod, container: ContainerStatus, end: Exit, pace: Pace) -> Iterator[PodEventNote]:
    if end.reason == "OOMKilled":
        text = f"Container {container.name} used more memory than it may have; raise its limit, or make it use less"
        yield PodEventNote(Kind.WARNING, PodEvent.OOM_KILLED, text)
    elif end.reason and end.code:
        yield PodEventNote(Kind.WARNING, PodEvent.FAILED, f"Container {container.name}: {end.reason}: {end.message}")
    if restarts(policy_of(pod.spec, container.name), end) and delay(container, end, pace) > 0:
        meta = pod.metadata
        text = f"Back-off restarting failed container {container.name} in pod {meta.name}_{meta.namespace}({meta.uid})"
        yield PodEventNote(Kind.WARNING, PodEvent.BACK_OFF, text)


def _pulling(state: object) -> bool:
    return isinstance(state, Waiting) and state.message.startswith(PULLING)


def _held_up(state: object) -> bool:
    return isinstance(state, Waiting) and state.reason not in ON_ITS_WAY


def failure_event(reason: str, message: str) -> PodEventNote:
    """The Event of a pod that cannot be started."""
    if reason == PodEvent.FAILED_MOUNT:
        return PodEventNote(Kind.WARNING, PodEvent.FAILED_MOUNT, message)
    if reason == PodEvent.FAILED_SANDBOX:
        return PodEventNote(Kind.WARNING, PodEvent.FAILED_SANDBOX, f"Failed to create pod sandbox: {message}")
    return PodEventNote(Kind.WARNING, PodEvent.FAILED, f"Error: {reason}: {message}")


def probe_events(container: str, which: Which, outcome: ProbeOutcome, fatal: bool) -> list[PodEventNote]:
    if which is Which.POST_START:
        found = [PodEventNote(Kind.WARNING, PodEvent.FAILED_POST_START, f"PostStartHook failed: {outcome.text}")]
    else:
        how = "failed" if outcome.result is Result.FAILURE else "errored"
        found = [PodEventNote(Kind.WARNING, PodEvent.UNHEALTHY, f"{which} probe {how}: {outcome.text}")]
    if fatal:
        what = "PostStartHook" if which is Which.POST_START else f"{which.lower()} probe"
        found.append(
            PodEventNote(Kind.NORMAL, PodEvent.KILLING, f"Container {container} failed {what}, will be restarted")
        )
    return found


def status_events(pod: NodePod, fields: Json) -> list[PodEventNote]:
    """Events for what a status just written says for the first time."""
    if fields.get("reason") == SANDPOOL_RESTARTED:
        return [PodEventNote(Kind.WARNING, PodEvent.RESTARTED, str(fields.get("message", "")))]
    if fields.get("reason") == EVICTED:
        return [PodEventNote(Kind.WARNING, PodEvent.EVICTED, str(fields.get("message", "")))]
    for condition in fields.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return [PodEventNote(Kind.WARNING, PodEvent.FAILED_SCHEDULING, condition.get("message", ""))]
    for shown in fields.get("containerStatuses") or ():
        waiting = (shown.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") == DISK_PRESSURE:
            return [PodEventNote(Kind.WARNING, PodEvent.DISK_PRESSURE, waiting.get("message", ""))]
        if waiting.get("reason") == PodEvent.FAILED_SANDBOX:
            return [failure_event(PodEvent.FAILED_SANDBOX, waiting.get("message", ""))]
    return []


class EventEmitter:
    """Emits Events about pods, which `pod_of` finds by uid. With `routine`, also for the steps of a successful start."""

    def __init__(self, events: Events, pod_of: Callable[[Uid], NodePod | None], pace: Pace, *, routine: bool) -> None:
        self._events = events
        self._pod_of = pod_of
        self._pace = pace
        self._routine = routine

    def moved(self, pod: NodePod, before: PodStatus | None, after: PodStatus | None) -> None:
        self._emit(pod, container_events(pod, before, after, self._pace))

    def published(self, pod: NodePod, fields: Json) -> None:
        self._emit(pod, status_events(pod, fields))

    def placed(self, pod: NodePod, node: str) -> None:
        """Call before the first start of a pod. There is no Scheduled event for a pod that named this node itself."""
        if self._routine and not pod.acknowledged and scheduled(pod):
            text = f"Successfully assigned {pod.metadata.key} to {node}"
            self._emit(pod, [PodEventNote(Kind.NORMAL, PodEvent.SCHEDULED, text, routine=True)])

    def start_failed(self, pod: NodePod, error: NodeError) -> None:
        self._emit(pod, [failure_event(error.reason, error.message)])

    def warned(self, pod: NodePod, text: str) -> None:
        self._emit(pod, [PodEventNote(Kind.WARNING, PodEvent.PULL_SECRET, text)])

    def probed(self, target: ProbeTarget, which: Which, outcome: ProbeOutcome, fatal: bool) -> None:
        pod = self._pod_of(target.uid)
        if pod is not None:
            self._emit(pod, probe_events(target.container.name, which, outcome, fatal))

    def hook_failed(self, target: ProbeTarget, outcome: ProbeOutcome) -> None:
        pod = self._pod_of(target.uid)
        if pod is not None:
            text = f"PreStopHook of container {target.container.name} failed: {outcome.text}"
            self._emit(pod, [PodEventNote(Kind.WARNING, PodEvent.FAILED_PRE_STOP, text)])

    def _emit(self, pod: NodePod, notes: Iterable[PodEventNote]) -> None:
        for kind, reason, message, routine in notes:
            if self._routine or not routine:
                self._events.emit(NODE_PODS, pod, kind, reason, message)
