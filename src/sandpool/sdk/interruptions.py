"""Finds in a claim and its pod why commands in a sandbox were interrupted. Pure: objects are plain JSON.

It compares times of one node: the kubelet records when a container started, the daemon in it when a command did.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sandpool.model import times
from sandpool.sdk.answers import printable
from sandpool.sdk.errors import CommandLost, ProcessLost, ProcessNotFound, SandboxError, SandboxRestarted

Object = Mapping[str, Any]

POD_DELETED = "PodDeleted"
EVICTED = "Evicted"
DAEMON_ENDED = "DaemonEnded"
LONGEST_REASON = 100


@dataclass(frozen=True, slots=True)
class LostRun:
    """The command or process that was lost."""

    id: str = ""
    """Its id at the daemon that started it; empty if the daemon never answered."""
    started: float = math.inf
    """In seconds since 1970, by the sandbox's clock."""


UNKNOWN_RUN = LostRun()


@dataclass(frozen=True, slots=True)
class Interruption:
    """Why everything that ran in the sandbox ended."""

    reason: str
    """One word, of the pod or of the container: OOMKilled, Error, Evicted, PodDeleted."""
    message: str


def interruption(
    pod: Object | None, started: float = UNKNOWN_RUN.started, *, forgotten: bool = False
) -> Interruption | None:
    """What ended everything that ran in the pod since `started` (seconds since 1970). None: the pod shows nothing of the kind. `forgotten`:
    the daemon does not know the process, so a pod that started in that very second is another one."""
    if pod is None:
        return Interruption(POD_DELETED, "its pod was deleted")
    status = pod.get("status") or {}
    if status.get("phase") in ("Failed", "Succeeded"):
        return Interruption(_word(status.get("reason")) or f"Pod{status['phase']}", _over(status))
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return Interruption(POD_DELETED, "its pod is being deleted")
    for container in _containers(pod):
        if (found := _ended(container, started, forgotten)) is not None:
            return found
    return None


def restarts_of(pod: Object) -> tuple[int, str]:
    """How often containers of the pod were restarted, and why the last time; empty if they never were."""
    count, newest, reason = 0, "", ""
    for container in _containers(pod):
        count += int(container.get("restartCount") or 0)
        end = _last_end(container)
        if str(end.get("finishedAt") or "") >= newest and end:
            newest, reason = str(end.get("finishedAt") or ""), _word(end.get("reason"))
    return count, reason


@dataclass(frozen=True, slots=True)
class RestartHistory:
    """What a handle has seen of the restarts of its sandbox. The counts of a deleted pod are lost with it, so they are kept here."""

    pod: str | None = None
    """The uid of the newest pod. None: no pod was observed yet. Empty: its end is known, and another one is expected."""
    count: int = 0
    """How often its containers were restarted."""
    before: int = 0
    """How often the sandbox was restarted up to that pod, including its start."""
    reason: str = ""
    """Why the last time."""

    @property
    def restarts(self) -> int:
        return self.before + self.count


def observed(
    so_far: RestartHistory, pod: Object | None, since: float = UNKNOWN_RUN.started, *, replaced: bool = False
) -> RestartHistory:
    """The history with what the pod shows now. `since` is when the sandbox was surely running, by its clock; `replaced`: its earlier pod
    is known to be gone."""
    if pod is None:
        return RestartHistory("", 0, so_far.restarts + 1, POD_DELETED) if replaced and so_far.pod != "" else so_far
    metadata = pod.get("metadata") or {}
    uid, (count, reason) = str(metadata.get("uid") or ""), restarts_of(pod)
    if so_far.pod is None:
        later = _seconds(metadata.get("creationTimestamp")) > since
        another = later or (replaced and not metadata.get("deletionTimestamp"))
    else:
        another = so_far.pod not in ("", uid)
    if another:
        return RestartHistory(uid, count, so_far.restarts + 1, reason or POD_DELETED)
    return replace(so_far, pod=uid, count=count, reason=reason or so_far.reason)


def mode_changed(so_far: RestartHistory) -> RestartHistory:
    """The handle itself suspended or resumed the sandbox: another pod is expected then."""
    return RestartHistory("", 0, so_far.restarts, so_far.reason)


def explained_by(error: SandboxError, why: Interruption) -> SandboxError:
    """The error for a command or process that was lost, once the cause is known."""
    if isinstance(error, ProcessNotFound):
        return ProcessLost(f"{_first(error)}: {why.message}, and what ran in it ended ({why.reason})", why.reason)
    if isinstance(error, CommandLost):
        return SandboxRestarted(f"{_first(error)}: {why.message} ({why.reason})", why.reason)
    return error


def _ended(container: Object, started: float, forgotten: bool) -> Interruption | None:
    name, state = printable(str(container.get("name", "")), LONGEST_REASON), container.get("state") or {}
    before = _last_end(container)
    if now := state.get("terminated"):
        return Interruption(_word(now.get("reason")) or "Error", f"its container {name} has ended{_code(now)}")
    running = state.get("running")
    if running is None:
        if not before:
            return Interruption(POD_DELETED, "its pod was deleted, and another one is starting")
        return Interruption(_word(before.get("reason")) or "Error", f"its container {name} ended{_code(before)}")
    at = _seconds(running.get("startedAt"))
    same_second = started != UNKNOWN_RUN.started and at >= math.floor(started)  # startedAt has whole seconds
    if before and same_second:
        message = f"its container {name} ended{_code(before)} and was restarted"
        return Interruption(_word(before.get("reason")) or "Error", message)
    if at > started or (forgotten and same_second):
        return Interruption(POD_DELETED, "its pod was deleted, and another one has replaced it")
    return None


def _containers(pod: Object) -> Iterator[Object]:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        if isinstance(container, Mapping):
            yield container


def _last_end(container: Object) -> Object:
    found: Object = (container.get("lastState") or {}).get("terminated") or {}
    return found


def _over(status: Object) -> str:
    said = printable(str(status.get("message") or ""), 500)
    return f"its pod has ended{f': {said}' if said else ''}"


def _code(end: Object) -> str:
    code = end.get("exitCode")
    return f" with exit code {code}" if isinstance(code, int) else ""


def _word(text: object) -> str:
    return printable(str(text or ""), LONGEST_REASON)


def _first(error: SandboxError) -> str:
    """The message of an error, without its advice."""
    return str(error).rpartition("; ")[0] or str(error)


def _seconds(text: object) -> float:
    try:
        return times.parse(text).timestamp() if isinstance(text, str) else -math.inf
    except times.TimeError:
        return -math.inf
