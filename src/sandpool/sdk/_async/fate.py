"""What became of a claim's sandbox, asked for when something has failed and never before.

A call that finds another daemon in the sandbox than the last one is refused by it (data_plane.py); here is found out why there is another.

`kubectl delete sandbox` takes the sandbox from under a claim; the controllers give the claim another one. Then the handle leads to
that one, and one call says so with SandboxReplaced: what was in the old one is gone, which nobody should have to guess.
"""

from __future__ import annotations

import time
from dataclasses import replace
from urllib.parse import quote

from sandpool.base.errors import SandpoolError
from sandpool.kube.errors import NotFound
from sandpool.sdk._async.cluster import Cluster, Object
from sandpool.sdk._async.data_plane import DataPlane
from sandpool.sdk._async.transport import sleep
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
from sandpool.sdk.fates import (
    DAEMON_ENDED,
    EVICTED,
    POD_DELETED,
    UNHEARD,
    Interruption,
    Ran,
    Seen,
    interruption,
    lost_by,
    seen,
    steered,
)
from sandpool.wire.paths import HEALTH, PROCESSES

POD_NAME = "agents.x-k8s.io/pod-name"
PATIENCE = 5.0
"""Seconds that a claim which has lost its sandbox is given to get another one."""
TOLD = 3.0
"""Seconds within which a node tells that a container has ended."""
PAUSE = 0.1
_ENDED = Interruption(DAEMON_ENDED, "its daemon ended and was started again")


class Fate:
    """Of the sandbox that `plane` leads to."""

    def __init__(self, cluster: Cluster, plane: DataPlane, claim: Object) -> None:
        metadata = claim["metadata"]
        self._cluster = cluster
        self._plane = plane
        self._namespace, self._name, self._uid = (str(metadata[key]) for key in ("namespace", "name", "uid"))
        self._seen = Seen()

    async def explained(self, error: SandboxError, ran: Ran) -> SandboxError:
        """The error that says what happened; the same one if nothing more can be found out. `ran` is what it is about."""
        if not isinstance(error, SandboxGone | SandboxNotFound | CommandLost | ProcessNotFound):
            return error
        try:
            return await self._looked(error, ran)
        except SandpoolError:  # whoever may use a sandbox need not be allowed to look at all of this
            return error

    async def counted(self, info: SandboxInfo) -> SandboxInfo:
        """With how often it was started again, where that may be read."""
        if not info.sandbox:
            return info
        try:
            pod = await self._cluster.get(pods(self._namespace, info.sandbox))
        except SandpoolError:
            return info
        self._seen = seen(self._seen, pod, self._plane.since)
        return replace(info, restarts=self._seen.restarts, last_restart_reason=self._seen.reason)

    def steered(self) -> None:
        """Whoever has the handle has suspended or resumed the sandbox: that it was started again is no news."""
        self._seen = steered(self._seen)
        self._plane.forget()

    async def _looked(self, error: SandboxError, ran: Ran) -> SandboxError:
        name, uid, until = self._plane.sandbox, self._plane.uid, time.monotonic() + PATIENCE
        while True:
            claim = await self._claim()
            if claim is None:
                return self._gone()
            bound = sandbox_name(claim)
            box = await self._found(sandboxes(self._namespace, bound)) if bound else None
            if box is not None and not box["metadata"].get("deletionTimestamp"):
                same = bound == name and uid in ("", box["metadata"]["uid"])
                if same:
                    return await self._of_pod(error, box, ran)
                if ready(claim):
                    return self._follow(bound, str(box["metadata"]["uid"]))
            if (wrong := failure(claim)) is not None:
                return SandboxGone(f"{wrong}; claim another sandbox")
            if time.monotonic() >= until:
                return NotReady(
                    f"{self}: its sandbox {name} was deleted, and it has no other one yet: {waiting_for(claim)}; try again"
                )
            await sleep(PAUSE)

    async def _of_pod(self, error: SandboxError, box: Object, ran: Ran) -> SandboxError:
        notes = box["metadata"].get("annotations") or {}
        path = pods(self._namespace, str(notes.get(POD_NAME) or box["metadata"]["name"]))
        if isinstance(error, SandboxRestarted):
            why: Interruption | None = await self._forgotten(path, ran.started, TOLD) or _ENDED
        elif isinstance(error, CommandLost):
            why = await self._broke(path, ran)
        elif isinstance(error, ProcessNotFound):  # whoever had it in hand knows that it was there
            why = await self._forgotten(path, ran.started, TOLD if ran.id else 0.0)
        else:
            why = await self._interruption(path)
        if why is None:
            return error
        if why.reason == EVICTED:
            return SandboxEvicted(f"{self}: {why.message}; claim another sandbox", why.reason)
        return lost_by(error, why)

    async def _broke(self, path: str, ran: Ran) -> Interruption | None:
        """Why a connection broke. A node tells of an end a moment after it, so it is given that long; unless the daemon that the
        command was started by still answers: then it was the connection and nothing else."""
        until = time.monotonic() + TOLD
        since = self._plane.since if ran == UNHEARD else ran.started
        while (why := await self._interruption(path, since)) is None:
            known = await self._known(ran)
            if known is False:
                return await self._interruption(path, since, forgotten=True) or _ENDED
            if known or time.monotonic() >= until:
                return None
            await sleep(PAUSE)
        return why

    async def _forgotten(self, path: str, since: float, patience: float) -> Interruption | None:
        """Why the daemon does not know what was there before: whoever is sure that it was waits for the node's word."""
        until = time.monotonic() + patience
        while (why := await self._interruption(path, since, forgotten=True)) is None:
            if time.monotonic() >= until:
                return None
            await sleep(PAUSE)
        return why

    async def _known(self, ran: Ran) -> bool | None:
        """Whether the daemon in the sandbox is the one that started it. None: it does not answer, or nobody knows which one did."""
        if not ran.id and self._plane.since == UNHEARD.started:
            return None
        path = f"{PROCESSES}/{quote(ran.id, safe='')}" if ran.id else HEALTH
        return await self._plane.answered_by_the_same(path, TOLD)

    async def _interruption(
        self, path: str, since: float = UNHEARD.started, *, forgotten: bool = False
    ) -> Interruption | None:
        pod = await self._found(path)
        why = interruption(pod, since, forgotten=forgotten)
        if why is not None and why.reason == POD_DELETED:
            self._seen = seen(self._seen, pod, replaced=True)
        return why

    def _follow(self, sandbox: str, uid: str) -> SandboxReplaced:
        old, self._plane.sandbox, self._plane.uid = self._plane.sandbox, sandbox, uid
        self._plane.forget()
        self._seen = Seen()
        return SandboxReplaced(
            f"{self}: its sandbox {old} was deleted, and it has another one now, {sandbox}: what was in the old one is gone; this "
            "handle leads to the new one, so prepare it again and go on",
            sandbox,
        )

    async def _claim(self) -> Object | None:
        claim = await self._found(claims(self._namespace, self._name))
        if claim is None or claim["metadata"]["uid"] != self._uid or claim["metadata"].get("deletionTimestamp"):
            return None
        return claim

    async def _found(self, path: str) -> Object | None:
        try:
            return await self._cluster.get(path)
        except NotFound:
            return None

    def _gone(self) -> SandboxGone:
        return SandboxGone(f"{self} has ended; claim another sandbox")

    def __str__(self) -> str:
        return f"claim {self._namespace}/{self._name}"
