"""What became of a sandbox, read off its claim and its pod. Pure: objects are plain JSON.

Times that are compared are the node's: a kubelet writes when a container started, the daemon beside it when a command did.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sandpool.model import times
from sandpool.sdk.errors import CommandLost, ProcessLost, ProcessNotFound, SandboxError, SandboxRestarted
from sandpool.sdk.refusals import printable

Object = Mapping[str, Any]

POD_DELETED = "PodDeleted"
EVICTED = "Evicted"
DAEMON_ENDED = "DaemonEnded"
LONGEST_REASON = 100


@dataclass(frozen=True, slots=True)
class Ran:
    """What was lost: a command, or a process."""

    id: str = ""
    """By which the sandbox's daemon knows it, while it is the same daemon; empty if nothing was heard of it."""
    started: float = math.inf
    """In seconds since 1970, by the sandbox's clock."""


UNHEARD = Ran()


@dataclass(frozen=True, slots=True)
class Interruption:
    """Why nothing that ran before goes on."""

    reason: str
    """One word, of the pod or of the container: OOMKilled, Error, Evicted, PodDeleted."""
    message: str


def interruption(
    pod: Object | None, started: float = UNHEARD.started, *, forgotten: bool = False
) -> Interruption | None:
    """What ended all that ran in the pod since `started` (seconds since 1970). None: nothing shows that anything did. `forgotten`: the
    daemon in it does not know what ran, so a pod that started in that very second is another one."""
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
    """How often containers of the pod were started again, and why the last time; empty if they never were."""
    count, newest, reason = 0, "", ""
    for container in _containers(pod):
        count += int(container.get("restartCount") or 0)
        end = _last_end(container)
        if str(end.get("finishedAt") or "") >= newest and end:
            newest, reason = str(end.get("finishedAt") or ""), _word(end.get("reason"))
    return count, reason


@dataclass(frozen=True, slots=True)
class Seen:
    """What a handle has seen of the pods of its sandbox: a pod that is deleted and made again takes its counts along."""

    pod: str | None = None
    """The uid of the newest one. None: none was looked at yet. Empty: its end is known, and the next one is no news."""
    count: int = 0
    """How often its containers were started again."""
    before: int = 0
    """How often the sandbox was started again before that pod, and with it."""
    reason: str = ""
    """Why the last time."""

    @property
    def restarts(self) -> int:
        return self.before + self.count


def seen(so_far: Seen, pod: Object | None, since: float = UNHEARD.started, *, replaced: bool = False) -> Seen:
    """With what the pod shows now. `since` is when the sandbox was surely running already, by its clock; `replaced`: it is known that
    there was another pod before this one, or before there is one again."""
    if pod is None:
        return Seen("", 0, so_far.restarts + 1, POD_DELETED) if replaced and so_far.pod != "" else so_far
    metadata = pod.get("metadata") or {}
    uid, (count, reason) = str(metadata.get("uid") or ""), restarts_of(pod)
    if so_far.pod is None:
        later = _seconds(metadata.get("creationTimestamp")) > since
        another = later or (replaced and not metadata.get("deletionTimestamp"))
    else:
        another = so_far.pod not in ("", uid)
    if another:
        return Seen(uid, count, so_far.restarts + 1, reason or POD_DELETED)
    return replace(so_far, pod=uid, count=count, reason=reason or so_far.reason)


def steered(so_far: Seen) -> Seen:
    """Whoever has the handle suspends or resumes the sandbox: another pod is no surprise then."""
    return Seen("", 0, so_far.restarts, so_far.reason)


def lost_by(error: SandboxError, why: Interruption) -> SandboxError:
    """The error of a command or process that was lost, once it is known by what."""
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
    same_second = started != UNHEARD.started and at >= math.floor(started)  # whole seconds are told
    if before and same_second:
        message = f"its container {name} ended{_code(before)} and was started again"
        return Interruption(_word(before.get("reason")) or "Error", message)
    if at > started or (forgotten and same_second):
        return Interruption(POD_DELETED, "its pod was deleted, and another one has taken its place")
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
    """What an error says, without its advice."""
    return str(error).rpartition("; ")[0] or str(error)


def _seconds(text: object) -> float:
    try:
        return times.parse(text).timestamp() if isinstance(text, str) else -math.inf
    except times.TimeError:
        return -math.inf
