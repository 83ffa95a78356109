"""Container statuses: from what a backend says to what the API shows, and back again after a restart. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sandpool.local.backends.base import ContainerSpec, Exit, Running, RunningContainer, Started, State, Waiting
from sandpool.local.kubelet.options import Pace
from sandpool.local.kubelet.pods import Json, NodePod
from sandpool.local.kubelet.restarts import delay, due_at, restarts
from sandpool.model import times


@dataclass(frozen=True, slots=True)
class Trouble:
    """The backend could not start the pod; it is tried again at `retry_at`."""

    reason: str
    message: str
    retry_at: datetime


def creating(specs: Sequence[ContainerSpec], reason: str, message: str = "") -> list[Json]:
    """The statuses of containers of which there is nothing yet."""
    seen = (RunningContainer(spec.name, Waiting(reason, message)) for spec in specs)
    return [
        _status(spec, container, _waiting(Waiting(reason, message)))
        for spec, container in zip(specs, seen, strict=True)
    ]


def statuses(
    specs: Sequence[ContainerSpec], seen: Iterable[RunningContainer], policy: str, pace: Pace, now: datetime
) -> list[Json]:
    """In the order of the spec. One that will be restarted after a delay waits, and says for what."""
    by_name = {container.name: container for container in seen}
    found = []
    for spec in specs:
        container = by_name.get(spec.name) or RunningContainer(spec.name, Waiting())
        state, last = container.state, container.last
        if isinstance(state, Exit) and restarts(policy, state) and due_at(container, state, pace) > now:
            wait = f"back-off {delay(container, state, pace):g}s restarting failed container {spec.name}"
            last = state
            state = Waiting("CrashLoopBackOff", wait)
        shown = _status(spec, container, _state(state, container.id))
        if last is not None:
            shown["lastState"] = _state(last, "")
        found.append(shown)
    return found


def _status(spec: ContainerSpec, container: RunningContainer, state: Json) -> Json:
    running = container.state if isinstance(container.state, Started) else None
    status: Json = {
        "name": spec.name,
        "state": state,
        "lastState": {},
        "ready": running is not None and running.ready,
        "restartCount": container.restarts,
        "image": spec.image,
        "imageID": "",
        "started": running is not None,
    }
    if container.id:
        status["containerID"] = container.id
    return status


def init_statuses(specs: Sequence[ContainerSpec], seen: Iterable[RunningContainer]) -> list[Json]:
    """An init container that has succeeded counts as ready."""
    by_name = {container.name: container for container in seen}
    found = []
    for spec in specs:
        container = by_name.get(spec.name) or RunningContainer(spec.name, Waiting("PodInitializing"))
        status = _status(spec, container, _state(container.state, container.id))
        status["ready"] = isinstance(container.state, Exit) and container.state.code == 0
        found.append(status)
    return found


def _state(state: State, container_id: str) -> Json:
    match state:
        case Waiting():
            return _waiting(state)
        case Started(at):
            return {"running": {"startedAt": times.seconds(at)}}
        case Exit():
            return {"terminated": _terminated(state, container_id)}


def _waiting(state: Waiting) -> Json:
    said = {"reason": state.reason, "message": state.message}
    return {"waiting": {name: text for name, text in said.items() if text}}


def _terminated(end: Exit, container_id: str) -> Json:
    ended: Json = {
        "exitCode": end.code,
        "reason": end.reason or ("Completed" if end.code == 0 else "Error"),
        "startedAt": times.seconds(end.started_at or end.at),
        "finishedAt": times.seconds(end.at),
    }
    more = {"signal": end.signal, "message": end.message, "containerID": container_id}
    return ended | {name: value for name, value in more.items() if value}


# The way back


def read_back(pod: NodePod) -> Running | None:
    """How the API last knew the pod, in a backend's words; None if not all of it has run."""
    address = pod.status.get("podIP", "")
    init = tuple(_read(status) for status in pod.status.get("initContainerStatuses") or ())
    seen = tuple(_read(status) for status in pod.status.get("containerStatuses") or ())
    names = [container.name for container in seen if not isinstance(container.state, Waiting)]
    if not address or names != [spec.name for spec in pod.spec.containers]:
        return None
    return Running(pod.metadata.uid, pod.metadata.key, address, init, seen)


def _read(status: Json) -> RunningContainer:
    state, last = status.get("state") or {}, status.get("lastState") or {}
    before = _read_exit(last["terminated"]) if last.get("terminated") else None
    found: State
    if state.get("running"):
        found = Started(times.parse(state["running"]["startedAt"]), bool(status.get("ready")))
    elif state.get("terminated"):
        found = _read_exit(state["terminated"])
    elif before is not None:  # it waits to be restarted
        found, before = before, None
    else:
        found = Waiting((state.get("waiting") or {}).get("reason") or "ContainerCreating")
    return RunningContainer(
        status.get("name", ""), found, status.get("containerID", ""), status.get("restartCount", 0), before
    )


def _read_exit(ended: Json) -> Exit:
    reason = ended.get("reason", "")
    return Exit(
        ended.get("exitCode", 0),
        times.parse(ended["finishedAt"]),
        times.parse(ended["startedAt"]) if ended.get("startedAt") else None,
        ended.get("signal", 0),
        "" if reason in ("Completed", "Error") else reason,
        ended.get("message", ""),
    )
