# generated from sdk/_async/failure_diagnosis.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""Finds out what happened to a claim's sandbox, only after a call has failed.

A daemon that was restarted refuses the next call (data_plane.py); this module finds out why it was restarted.

After `kubectl delete sandbox` the controllers give the claim another sandbox. The handle then uses that one, and one call raises
SandboxReplaced, because the files and processes of the old one are gone.
"""

from __future__ import annotations

import time
from dataclasses import replace
from urllib.parse import quote

from sandpool.base.errors import SandpoolError
from sandpool.kube.errors import NotFound
from sandpool.sdk._sync.cluster import Cluster, Object
from sandpool.sdk._sync.data_plane import DataPlane
from sandpool.sdk._sync.transport import sleep
from sandpool.sdk.api_paths import claims, pods, sandboxes
from sandpool.sdk.claims import SandboxInfo, failure, ready, sandbox_name, waiting_for
from sandpool.sdk.errors import (
    CommandLost,
    NotReady,
    ProcessNotFound,
    SandboxError,
    SandboxEvicted,
    SandboxGone,
    SandboxNotFound,
    SandboxReplaced,
    SandboxRestarted,
)
from sandpool.sdk.interruptions import (
    DAEMON_ENDED,
    EVICTED,
    POD_DELETED,
    UNKNOWN_RUN,
    Interruption,
    LostRun,
    RestartHistory,
    explained_by,
    interruption,
    mode_changed,
    observed,
)
from sandpool.wire.paths import HEALTH, PROCESSES

POD_NAME = "agents.x-k8s.io/pod-name"
PATIENCE = 5.0
"""Seconds to wait until a claim whose sandbox was deleted has another one."""
STATUS_DELAY = 3.0
"""Seconds within which a node reports that a container has ended."""
PAUSE = 0.1
_ENDED = Interruption(DAEMON_ENDED, "its daemon ended and was restarted")


class FailureDiagnosis:
    """Explains failures of the sandbox that `plane` leads to."""

    def __init__(self, cluster: Cluster, plane: DataPlane, claim: Object) -> None:
        metadata = claim["metadata"]
        self._cluster = cluster
        self._plane = plane
        self._namespace, self._name, self._uid = (str(metadata[key]) for key in ("namespace", "name", "uid"))
        self._history = RestartHistory()

    def explain(self, error: SandboxError, ran: LostRun) -> SandboxError:
        """The error that says what happened, or the same one if nothing more is found out. `ran` is the command or process it is about."""
        if not isinstance(error, SandboxGone | SandboxNotFound | CommandLost | ProcessNotFound):
            return error
        try:
            return self._looked(error, ran)
        except SandpoolError:  # a user of a sandbox need not be allowed to read all of this
            return error

    def with_restarts(self, info: SandboxInfo) -> SandboxInfo:
        """The same with the number of restarts, if the pod may be read."""
        if not info.sandbox:
            return info
        try:
            pod = self._cluster.get(pods(self._namespace, info.sandbox))
        except SandpoolError:
            return info
        self._history = observed(self._history, pod, self._plane.since)
        return replace(info, restarts=self._history.restarts, last_restart_reason=self._history.reason)

    def mode_changed(self) -> None:
        """The handle has suspended or resumed the sandbox: a restart is expected."""
        self._history = mode_changed(self._history)
        self._plane.forget()

    def _looked(self, error: SandboxError, ran: LostRun) -> SandboxError:
        name, uid, until = self._plane.sandbox, self._plane.uid, time.monotonic() + PATIENCE
        while True:
            claim = self._claim()
            if claim is None:
                return self._gone()
            bound = sandbox_name(claim)
            box = self._found(sandboxes(self._namespace, bound)) if bound else None
            if box is not None and not box["metadata"].get("deletionTimestamp"):
                same = bound == name and uid in ("", box["metadata"]["uid"])
                if same:
                    return self._of_pod(error, box, ran)
                if ready(claim):
                    return self._follow(bound, str(box["metadata"]["uid"]))
            if (wrong := failure(claim)) is not None:
                return SandboxGone(f"{wrong}; claim another sandbox")
            if time.monotonic() >= until:
                return NotReady(
                    f"{self}: its sandbox {name} was deleted, and the claim has no other one yet: {waiting_for(claim)}; try again"
                )
            sleep(PAUSE)

    def _of_pod(self, error: SandboxError, box: Object, ran: LostRun) -> SandboxError:
        notes = box["metadata"].get("annotations") or {}
        path = pods(self._namespace, str(notes.get(POD_NAME) or box["metadata"]["name"]))
        if isinstance(error, SandboxRestarted):
            why: Interruption | None = self._forgotten(path, ran.started, STATUS_DELAY) or _ENDED
        elif isinstance(error, CommandLost):
            why = self._broke(path, ran)
        elif isinstance(error, ProcessNotFound):  # the caller has used it, so it existed
            why = self._forgotten(path, ran.started, STATUS_DELAY if ran.id else 0.0)
        else:
            why = self._interruption(path)
        if why is None:
            return error
        if why.reason == EVICTED:
            return SandboxEvicted(f"{self}: {why.message}; claim another sandbox", why.reason)
        return explained_by(error, why)

    def _broke(self, path: str, ran: LostRun) -> Interruption | None:
        """Why a connection broke. Waits until the node would have reported the end of a container, unless the daemon that started the
        command still answers: then only the connection was lost."""
        until = time.monotonic() + STATUS_DELAY
        since = self._plane.since if ran == UNKNOWN_RUN else ran.started
        while (why := self._interruption(path, since)) is None:
            known = self._known(ran)
            if known is False:
                return self._interruption(path, since, forgotten=True) or _ENDED
            if known or time.monotonic() >= until:
                return None
            sleep(PAUSE)
        return why

    def _forgotten(self, path: str, since: float, patience: float) -> Interruption | None:
        """Why the daemon does not know a process. Waits for the node's report if the process surely existed."""
        until = time.monotonic() + patience
        while (why := self._interruption(path, since, forgotten=True)) is None:
            if time.monotonic() >= until:
                return None
            sleep(PAUSE)
        return why

    def _known(self, ran: LostRun) -> bool | None:
        """Whether the daemon in the sandbox is the one that started it. None: it does not answer, or that is not known."""
        if not ran.id and self._plane.since == UNKNOWN_RUN.started:
            return None
        path = f"{PROCESSES}/{quote(ran.id, safe='')}" if ran.id else HEALTH
        return self._plane.answered_by_the_same(path, STATUS_DELAY)

    def _interruption(
        self, path: str, since: float = UNKNOWN_RUN.started, *, forgotten: bool = False
    ) -> Interruption | None:
        pod = self._found(path)
        why = interruption(pod, since, forgotten=forgotten)
        if why is not None and why.reason == POD_DELETED:
            self._history = observed(self._history, pod, replaced=True)
        return why

    def _follow(self, sandbox: str, uid: str) -> SandboxReplaced:
        old, self._plane.sandbox, self._plane.uid = self._plane.sandbox, sandbox, uid
        self._plane.forget()
        self._history = RestartHistory()
        return SandboxReplaced(
            f"{self}: its sandbox {old} was deleted, and the claim has another one now, {sandbox}: the files and processes of the "
            "old one are gone; this handle uses the new one, so prepare it again and retry",
            sandbox,
        )

    def _claim(self) -> Object | None:
        claim = self._found(claims(self._namespace, self._name))
        if claim is None or claim["metadata"]["uid"] != self._uid or claim["metadata"].get("deletionTimestamp"):
            return None
        return claim

    def _found(self, path: str) -> Object | None:
        try:
            return self._cluster.get(path)
        except NotFound:
            return None

    def _gone(self) -> SandboxGone:
        return SandboxGone(f"{self} has ended; claim another sandbox")

    def __str__(self) -> str:
        return f"claim {self._namespace}/{self._name}"
