"""Looks up sandboxes by name in a cache, and decides whether a request may go there now.

An unclaimed member of a pool lets nobody in: a visitor could leave something behind for its first owner.

The cache lags behind the API server: a client that has just seen its claim become Ready may arrive before the watch event. With
`patience`, a refusal that the next event may change waits for that event, at most that long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from sandpool.base.clock import Clock
from sandpool.loop.cache import Cache
from sandpool.loop.index import namespace_of
from sandpool.model.conditions import find as condition_of
from sandpool.model.expiry import expired, sandbox_end
from sandpool.model.labels import EXTENSIONS, POD_NAME
from sandpool.model.metadata import Key, Uid
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox
from sandpool.router.answers import Refusal, Word, unavailable
from sandpool.router.ports import Target

RETRY_AFTER = 1
"""Seconds of Retry-After for a sandbox that is starting."""


def find(sandbox: Sandbox | None, key: Key, uid: str, now: datetime) -> Target | Refusal:
    """`sandbox` is what the cache has under `key`; `uid` is the one that the caller asked for, if it named one."""
    if (refusal := unidentified(sandbox, key, uid, now)) is not None:
        return refusal
    assert sandbox is not None
    return _resting(sandbox) or _target(sandbox)


def unidentified(sandbox: Sandbox | None, key: Key, uid: str, now: datetime) -> Refusal | None:
    """Why nobody gets a token for this sandbox; None: it exists, is claimed, and has not ended."""
    if sandbox is None:
        return Refusal(
            404,
            Word.NOT_FOUND,
            f"there is no sandbox {key.name} in namespace {key.namespace}. Use the name of the Sandbox, which its "
            f"claim has in status.sandbox.name: `kubectl get sandboxclaims,sandboxes -n {key.namespace}`",
            passing=True,
        )
    if pooled(sandbox):
        owner = sandbox.metadata.controller
        pool = owner.name if owner is not None else ""
        return Refusal(
            404,
            Word.NOT_CLAIMED,
            f"sandbox {key} is not claimed: it waits in the pool {pool}. `sandpool claim {pool}` gets one",
            passing=True,
        )
    if uid and uid != sandbox.metadata.uid:
        return Refusal(
            410,
            Word.GONE,
            f"the sandbox {key} with uid {uid}) is gone; another one has its name now. Claim a new one",
            passing=True,
        )
    return _ended(sandbox, key, now)


def pooled(sandbox: Sandbox) -> bool:
    """Whatever version its reference has."""
    owner = sandbox.metadata.controller
    return owner is not None and (owner.group, owner.kind) == (EXTENSIONS, SandboxWarmPool.kind)


def _ended(sandbox: Sandbox, key: Key, now: datetime) -> Refusal | None:
    conditions = sandbox.status.conditions
    ready, finished = condition_of(conditions, Type.READY), condition_of(conditions, Type.FINISHED)
    if sandbox.metadata.leaving:
        why = "is being deleted"
    elif expired(sandbox_end(sandbox), now) or (ready is not None and ready.reason == Reason.SANDBOX_EXPIRED):
        why = "has expired: it reached spec.shutdownTime"
    elif finished is not None and finished.true:
        why = f"has finished ({finished.reason}): its pod ended"
    else:
        return None
    return Refusal(410, Word.GONE, f"sandbox {key} {why}. Claim a new one")


def _resting(sandbox: Sandbox) -> Refusal | None:
    key, ready = sandbox.metadata.key, condition_of(sandbox.status.conditions, Type.READY)
    if sandbox.spec.suspended:
        return Refusal(
            409,
            Word.SUSPENDED,
            f"sandbox {key} is suspended. Resume it: `sandpool resume sandbox/{key.name} -n {key.namespace}`",
            passing=True,
        )
    if ready is not None and ready.true and sandbox.status.pod_ips:
        return None
    reason = ready.reason if ready is not None else "it has no status yet"
    if ready is not None and ready.true:
        reason = "it has no address yet"
    said = f": {ready.message}" if ready is not None and not ready.true and ready.message else ""
    return Refusal(
        503,
        Word.NOT_READY,
        f"sandbox {key} is not ready ({reason}{said}). Try again, or inspect it: "
        f"`kubectl get sandbox {key.name} -n {key.namespace} -o yaml`",
        retry_after=RETRY_AFTER,
        passing=True,
    )


def _target(sandbox: Sandbox) -> Target:
    meta = sandbox.metadata
    pod = meta.annotations.get(POD_NAME) or meta.name
    return Target(meta.namespace, meta.name, Uid(meta.uid), pod, sandbox.status.pod_ips[0])


T = TypeVar("T")

MOST_WAITING = 1024
"""Requests that wait for the cache at the same time; further ones are answered from its present state."""


class Directory:
    """One cache of all namespaces, or one per served namespace."""

    def __init__(
        self, sandboxes: Cache[Sandbox] | Mapping[str, Cache[Sandbox]], clock: Clock, patience: float = 0.0
    ) -> None:
        self._caches = {"": sandboxes} if isinstance(sandboxes, Cache) else dict(sandboxes)
        self._clock = clock
        self._patience = patience
        self._namespaces = [cache.index(namespace_of) for cache in self._caches.values()]
        self._waiting: dict[Key, set[asyncio.Event]] = {}
        self._count = 0
        if patience > 0:
            for cache in self._caches.values():
                cache.subscribe(self._changed)

    def holds(self, namespace: str) -> bool:
        """Whether there is a sandbox in it."""
        return any(index.count(namespace) for index in self._namespaces)

    async def judged(self, key: Key, judge: Callable[[Sandbox | None], T | Refusal]) -> T | Refusal:
        """The answer of `judge` for the sandbox of this name."""
        cache = self._caches.get("", self._caches.get(key.namespace))
        if cache is None:
            return judge(None)  # this namespace is not served
        if not cache.synced.is_set():
            return unavailable("the router has not listed the sandboxes yet; try again in a moment")
        found = judge(cache.get(key))
        deadline = self._clock.monotonic() + self._patience
        while isinstance(found, Refusal) and found.passing:
            left = deadline - self._clock.monotonic()
            if left <= 0 or self._count >= MOST_WAITING or not await self._next_change(key, left):
                break
            found = judge(cache.get(key))
        return found

    async def _next_change(self, key: Key, seconds: float) -> bool:
        """Whether a watch event about this name came in time."""
        changed = asyncio.Event()
        self._waiting.setdefault(key, set()).add(changed)
        self._count += 1
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
            return True
        except TimeoutError:
            return False
        finally:
            self._count -= 1
            waiting = self._waiting[key]
            waiting.discard(changed)
            if not waiting:
                del self._waiting[key]

    def _changed(self, old: Sandbox | None, new: Sandbox | None) -> None:
        either = new or old
        if either is not None and self._waiting:
            for changed in self._waiting.get(either.metadata.key, ()):
                changed.set()
