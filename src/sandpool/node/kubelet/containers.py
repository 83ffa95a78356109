"""Translates container states of the backend to container statuses of the API, and back after a restart. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sandpool.model import times
from sandpool.node.backend import ContainerSpec, ContainerStatus, Exit, PodStatus, Started, State, Waiting
from sandpool.node.kubelet.options import Pace
from sandpool.node.kubelet.pods import Json, NodeContainer, NodePod
from sandpool.node.kubelet.probe_state import Health
from sandpool.node.pods.restarts import delay, due_at, policy_of, restarts

_LONGEST_MESSAGE = 4096


@dataclass(frozen=True, slots=True)
class Trouble:
    """The pod could not be started; the next attempt is at `retry_at`. `container` is the one that caused it; empty: all of them."""

    reason: str
    message: str
    retry_at: datetime
    container: str = ""


def creating(
    specs: Sequence[NodeContainer], usual: str, trouble: Trouble | None = None, before: Iterable[Json] = ()
) -> list[Json]:
    """The statuses of containers that do not exist yet, or any more. Restart counts and last states from `before` are kept."""
    shown = []
    known = {status.get("name"): status for status in before}
    for spec in specs:
        state = Waiting(usual)
        if trouble is not None and trouble.container in ("", spec.name):
            state = Waiting(trouble.reason, trouble.message)
        old = known.get(spec.name) or {}
        kept = {name: old[name] for name in ("restartCount", "lastState") if old.get(name)}
        shown.append(_status(spec, ContainerStatus(spec.name, state), _waiting(state)) | kept)
    return shown


@dataclass(frozen=True, slots=True)
class StatusContext:
    """What container statuses depend on besides the containers."""

    pod: NodePod
    pace: Pace
    now: datetime
    starting: Container[str] = ()  # running containers that have not passed their startup probe or postStart hook
    initializing: bool = False
    final: bool = False  # there are no more restarts


def statuses(context: StatusContext, specs: Sequence[NodeContainer], seen: Iterable[ContainerStatus]) -> list[Json]:
    """Statuses in the order of the spec. A container that will be restarted after a delay is waiting, with the reason."""
    by_name = {container.name: container for container in seen}
    usual = Waiting("PodInitializing") if context.initializing else Waiting()
    found = []
    for spec in specs:
        container = by_name.get(spec.name) or ContainerStatus(spec.name, usual)
        state, last = container.state, container.last
        if isinstance(state, Waiting) and state == Waiting():
            state = usual
        if isinstance(state, Exit) and (wait := _back_off(context, container, state)):
            last = state
            state = Waiting("CrashLoopBackOff", wait)
        shown = _status(spec, container, _state(state, container.id))
        if last is not None:
            shown["lastState"] = {"terminated": _terminated(last, "")}
        if spec.name in context.starting:
            shown["started"] = False
        found.append(shown)
    return found


def init_statuses(
    context: StatusContext, specs: Sequence[NodeContainer], seen: Iterable[ContainerStatus]
) -> list[Json]:
    """Statuses of init containers. One that has succeeded is ready, but never `started`, which is only for sidecars."""
    found = statuses(replace(context, initializing=True), specs, seen)
    for spec, shown in zip(specs, found, strict=True):
        if not spec.sidecar:
            shown["ready"] = (shown["state"].get("terminated") or {}).get("exitCode") == 0
            shown["started"] = False
    return found


def _back_off(context: StatusContext, container: ContainerStatus, end: Exit) -> str:
    """The message of a container that waits to be restarted; empty if it does not wait."""
    pod, pace = context.pod, context.pace
    restarting = not context.final and restarts(policy_of(pod.spec, container.name), end)
    if not restarting or due_at(container, end, pace) <= context.now:
        return ""
    meta = pod.metadata
    return (
        f"back-off {go_duration(delay(container, end, pace))} restarting failed container={container.name} "
        f"pod={meta.name}_{meta.namespace}({meta.uid})"
    )


def go_duration(seconds: float) -> str:
    """Formats whole seconds as Go does: 10s, 1m20s, 5m0s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def with_health(seen: PodStatus, health: Mapping[str, Health]) -> PodStatus:
    """Adds the results of probes: a container is ready if both the backend and its probes say so."""
    if not health:
        return seen
    return replace(seen, init=_with_health(seen.init, health), containers=_with_health(seen.containers, health))


def _with_health(seen: Iterable[ContainerStatus], health: Mapping[str, Health]) -> tuple[ContainerStatus, ...]:
    found = []
    for container in seen:
        known, state = health.get(container.name), container.state
        if known is not None and isinstance(state, Started) and state.ready and not known.ready:
            container = replace(container, state=replace(state, ready=False))
        found.append(container)
    return tuple(found)


def _status(spec: ContainerSpec, container: ContainerStatus, state: Json) -> Json:
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
    """Cleans a message that the container may have written: cuts it to the length that Kubernetes shows, and keeps only text."""
    return words[:_LONGEST_MESSAGE].encode("utf-8", "replace").decode()


# From the API back to the backend


def read_back(pod: NodePod) -> PodStatus | None:
    """The pod's last status in the API as a PodStatus; None if not all containers have run."""
    found = last_known(pod)
    names = [container.name for container in found.containers if not isinstance(container.state, Waiting)]
    return found if found.address and names == [spec.name for spec in pod.spec.containers] else None


def last_known(pod: NodePod) -> PodStatus:
    """The pod's last status in the API as a PodStatus, even if not all containers have run."""
    init = tuple(_read(status) for status in pod.status.get("initContainerStatuses") or ())
    seen = tuple(_read(status) for status in pod.status.get("containerStatuses") or ())
    return PodStatus(pod.metadata.uid, pod.metadata.key, pod.status.get("podIP", ""), init, seen)


def _read(status: Json) -> ContainerStatus:
    state, last = status.get("state") or {}, status.get("lastState") or {}
    before = _read_exit(last["terminated"]) if last.get("terminated") else None
    found: State
    if state.get("running"):
        found = Started(times.parse(state["running"]["startedAt"]), bool(status.get("ready")))
    elif state.get("terminated"):
        found = _read_exit(state["terminated"])
    elif before is not None:  # waiting to be restarted
        found, before = before, None
    else:
        found = Waiting((state.get("waiting") or {}).get("reason") or "ContainerCreating")
    return ContainerStatus(
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
