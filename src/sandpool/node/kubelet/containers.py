"""Container statuses: from what a backend says to what the API shows, and back again after a restart. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sandpool.model import times
from sandpool.node.backend import ContainerSpec, Exit, Running, RunningContainer, Started, State, Waiting
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.pods import Json, NodeContainer, NodePod
from sandpool.node.kubelet.probe_state import Health
from sandpool.node.kubelet.restarts import delay, due_at, policy_of, restarts

_LONGEST_MESSAGE = 4096


@dataclass(frozen=True, slots=True)
class Trouble:
    """The pod could not be started; it is tried again at `retry_at`. `container` is the one that it is about, if only one."""

    reason: str
    message: str
    retry_at: datetime
    container: str = ""


def creating(
    specs: Sequence[NodeContainer], usual: str, trouble: Trouble | None = None, before: Iterable[Json] = ()
) -> list[Json]:
    """The statuses of containers of which there is nothing yet, or nothing any more: what was counted `before` stays."""
    shown = []
    known = {status.get("name"): status for status in before}
    for spec in specs:
        state = Waiting(usual)
        if trouble is not None and trouble.container in ("", spec.name):
            state = Waiting(trouble.reason, trouble.message)
        old = known.get(spec.name) or {}
        kept = {name: old[name] for name in ("restartCount", "lastState") if old.get(name)}
        shown.append(_status(spec, RunningContainer(spec.name, state), _waiting(state)) | kept)
    return shown


@dataclass(frozen=True, slots=True)
class Showing:
    """What the statuses of a pod's containers depend on beside them."""

    pod: NodePod
    pace: Pace
    now: datetime
    starting: Container[str] = ()  # those that run, but have not passed their startup probe or hook
    initializing: bool = False
    final: bool = False  # nothing is restarted any more


def statuses(showing: Showing, specs: Sequence[NodeContainer], seen: Iterable[RunningContainer]) -> list[Json]:
    """In the order of the spec. One that will be restarted after a delay waits, and says for what."""
    by_name = {container.name: container for container in seen}
    usual = Waiting("PodInitializing") if showing.initializing else Waiting()
    found = []
    for spec in specs:
        container = by_name.get(spec.name) or RunningContainer(spec.name, usual)
        state, last = container.state, container.last
        if isinstance(state, Waiting) and state == Waiting():
            state = usual
        if isinstance(state, Exit) and (wait := _back_off(showing, container, state)):
            last = state
            state = Waiting("CrashLoopBackOff", wait)
        shown = _status(spec, container, _state(state, container.id))
        if last is not None:
            shown["lastState"] = {"terminated": _terminated(last, "")}
        if spec.name in showing.starting:
            shown["started"] = False
        found.append(shown)
    return found


def init_statuses(showing: Showing, specs: Sequence[NodeContainer], seen: Iterable[RunningContainer]) -> list[Json]:
    """An init container that has succeeded counts as ready, and is never `started`: that is for sidecars."""
    found = statuses(replace(showing, initializing=True), specs, seen)
    for spec, shown in zip(specs, found, strict=True):
        if not spec.sidecar:
            shown["ready"] = (shown["state"].get("terminated") or {}).get("exitCode") == 0
            shown["started"] = False
    return found


def _back_off(showing: Showing, container: RunningContainer, end: Exit) -> str:
    """What it waits for before it is restarted; empty if it does not wait."""
    pod, pace = showing.pod, showing.pace
    restarting = not showing.final and restarts(policy_of(pod.spec, container.name), end)
    if not restarting or due_at(container, end, pace) <= showing.now:
        return ""
    meta = pod.metadata
    return (
        f"back-off {go_duration(delay(container, end, pace))} restarting failed container={container.name} "
        f"pod={meta.name}_{meta.namespace}({meta.uid})"
    )


def go_duration(seconds: float) -> str:
    """As Go writes whole seconds: 10s, 1m20s, 5m0s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def judged(seen: Running, health: Mapping[str, Health]) -> Running:
    """With what the probes say: a container is ready if both the backend and they think so."""
    if not health:
        return seen
    return replace(seen, init=_judged(seen.init, health), containers=_judged(seen.containers, health))


def _judged(seen: Iterable[RunningContainer], health: Mapping[str, Health]) -> tuple[RunningContainer, ...]:
    found = []
    for container in seen:
        known, state = health.get(container.name), container.state
        if known is not None and isinstance(state, Started) and state.ready and not known.ready:
            container = replace(container, state=replace(state, ready=False))
        found.append(container)
    return tuple(found)


def _status(spec: ContainerSpec, container: RunningContainer, state: Json) -> Json:
    running = container.state if isinstance(container.state, Started) else None
    status: Json = {
        "name": spec.name,
        "state": state,
        "lastState": {},
        "ready": running is not None and running.ready,
        "restartCount": container.restarts,
        "image": spec.image,
        "imageID": container.image_id,
        "started": running is not None,
    }
    if container.id:
        status["containerID"] = container.id
    return status


def _state(state: State, container_id: str) -> Json:
    match state:
        case Waiting():
            return _waiting(state)
        case Started(at):
            return {"running": {"startedAt": times.seconds(at)}}
        case Exit():
            return {"terminated": _terminated(state, container_id)}


def _waiting(state: Waiting) -> Json:
    said = {"reason": state.reason, "message": _text(state.message)}
    return {"waiting": {name: text for name, text in said.items() if text}}


def _terminated(end: Exit, container_id: str) -> Json:
    ended: Json = {
        "exitCode": end.code,
        "reason": end.reason or ("Completed" if end.code == 0 else "Error"),
        "startedAt": times.seconds(end.started_at or end.at),
        "finishedAt": times.seconds(end.at),
    }
    more = {"signal": end.signal, "message": _text(end.message), "containerID": container_id}
    return ended | {name: value for name, value in more.items() if value}


def _text(words: str) -> str:
    """Some of it was written by the container: no more than Kubernetes shows, and nothing that is no text."""
    return words[:_LONGEST_MESSAGE].encode("utf-8", "replace").decode()


# The way back


def read_back(pod: NodePod) -> Running | None:
    """How the API last knew the pod, in a backend's words; None if not all of it has run."""
    found = last_known(pod)
    names = [container.name for container in found.containers if not isinstance(container.state, Waiting)]
    return found if found.address and names == [spec.name for spec in pod.spec.containers] else None


def last_known(pod: NodePod) -> Running:
    """The same, however much of it has run."""
    init = tuple(_read(status) for status in pod.status.get("initContainerStatuses") or ())
    seen = tuple(_read(status) for status in pod.status.get("containerStatuses") or ())
    return Running(pod.metadata.uid, pod.metadata.key, pod.status.get("podIP", ""), init, seen)


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
        status.get("name", ""),
        found,
        status.get("containerID", ""),
        status.get("restartCount", 0),
        before,
        status.get("imageID", ""),
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
