"""The annotations of a claim that other tools read: its sandbox, when it was first observed and first ready.

A claim has the first two (`naming`) before it is Ready. The third follows in a separate write, which is also a second watch event that shows the
claim as Ready. Clients need that event: one that watches in one thread and creates claims in another may handle the first event before it
has read the response to its POST.

For claims that were bound inline, `FirstReady` makes that write a moment later, when no claim waits. A reconcile follows only if the write fails. If
the process ends first, only the time of the first readiness is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import datetime
from typing import NamedTuple

from sandpool.base.clock import Clock
from sandpool.controllers.claim.memory import Memory, Notes
from sandpool.controllers.claim.observe import Observer
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.publish import Publisher
from sandpool.controllers.claim.view import bound_name
from sandpool.kube.priority import PATIENCE, STATUS_BATCH, Priority, UrgentWork, with_priority
from sandpool.loop.controller import Controller
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.labels import CLAIM_FIRST_READY_AT, CONTROLLER_FIRST_OBSERVED_AT, SANDBOX_NAME
from sandpool.model.metadata import Key, Uid
from sandpool.model.patches import Json, Patch, merge_patch
from sandpool.model.reasons import Type
from sandpool.model.times import micro
from sandpool.telemetry.log import bind

UNKNOWN = "unknown"
"""Recorded for a claim that was Ready before its time could be recorded, so that nothing measures it later."""


def annotations_patch(claim: SandboxClaim, sandbox: str, notes: Notes, now: datetime) -> Patch | None:
    """For a claim that is Ready or about to be: the missing annotations, for this uid only; None if nothing is missing."""
    meta = claim.metadata
    missing = missing_annotations(claim, sandbox, notes, now)
    head: dict[str, Json] = {"annotations": dict(missing)} if missing else {}
    if SANDBOX_NAME in meta.labels:  # where old versions had it
        head["labels"] = {SANDBOX_NAME: None}
    return merge_patch({"metadata": {"uid": str(meta.uid), **head}}) if head else None


def naming_patch(claim: SandboxClaim, sandbox: str, notes: Notes) -> Patch | None:
    """For a claim that is about to get this sandbox. None if its annotations already say so."""
    missing = naming(claim, sandbox, notes)
    return (
        merge_patch({"metadata": {"uid": str(claim.metadata.uid), "annotations": dict(missing)}}) if missing else None
    )


def missing_annotations(claim: SandboxClaim, sandbox: str, notes: Notes, now: datetime) -> dict[str, str]:
    missing = naming(claim, sandbox, notes)
    if not claim.metadata.annotations.get(CLAIM_FIRST_READY_AT):
        missing[CLAIM_FIRST_READY_AT] = first_ready(claim, notes, now)
    return missing


def naming(claim: SandboxClaim, sandbox: str, notes: Notes) -> dict[str, str]:
    """The missing annotations of those that a claim must have before it is Ready."""
    present = claim.metadata.annotations
    missing: dict[str, str] = {}
    if present.get(SANDBOX_NAME) != sandbox:
        missing[SANDBOX_NAME] = sandbox
    return missing | observed(claim, notes.first_seen)


def observed(claim: SandboxClaim, seen: datetime) -> dict[str, str]:
    """The annotation of when it was first observed, unless it has one."""
    known = claim.metadata.annotations.get(CONTROLLER_FIRST_OBSERVED_AT)
    return {} if known else {CONTROLLER_FIRST_OBSERVED_AT: micro(seen)}


def first_ready(claim: SandboxClaim, notes: Notes, now: datetime) -> str:
    if notes.first_ready is not None:
        return micro(notes.first_ready)
    return UNKNOWN if is_true(claim.status.conditions, Type.READY) else micro(now)


class _Due(NamedTuple):
    at: float
    key: Key
    uid: Uid


class FirstReady:
    """Writes the first-ready annotation of claims that were bound inline. Run `run`. Does nothing while annotations are switched off."""

    def __init__(
        self,
        observer: Observer,
        memory: Memory,
        publisher: Publisher,
        loop: Controller[Key],
        clock: Clock,
        options: Options,
    ) -> None:
        self._observer = observer
        self._memory = memory
        self._publisher = publisher
        self._loop = loop
        self._clock = clock
        self._options = options
        self._urgent = UrgentWork()
        self._due: deque[_Due] = deque()
        self._waiter: asyncio.Future[None] | None = None  # what `run` waits for, while it does

    def share(self, urgent: UrgentWork) -> None:
        self._urgent = urgent
        urgent.on_idle(self._wake)

    def follows(self, claim: SandboxClaim) -> None:
        """The claim is published as Ready, and needs a second event that shows it."""
        if self._options.annotations:
            at = self._clock.monotonic() + self._options.annotate_after
            self._due.append(_Due(at, claim.metadata.key, claim.metadata.uid))
            self._wake()

    async def run(self) -> None:
        while True:
            if not self._due:
                await self._wait()
                continue
            at = self._due[0].at
            now = self._clock.monotonic()
            if now < at:
                await self._clock.sleep(at - now)
            elif not self._urgent.idle and now < at + PATIENCE:
                await self._wait(at + PATIENCE - now)
            else:
                await self._write(now)

    async def _wait(self, longest: float | None = None) -> None:
        """Waits until no claim waits any more, another one is due, or so many seconds have passed."""
        self._waiter = asyncio.get_running_loop().create_future()
        timer = None if longest is None else self._clock.call_later(longest, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _write(self, now: float) -> None:
        due: list[_Due] = []
        while self._due and self._due[0].at <= now and len(due) < STATUS_BATCH:
            due.append(self._due.popleft())
        with with_priority(Priority.STATUS):
            async with asyncio.TaskGroup() as together:
                for one in due:
                    together.create_task(self._annotate(one.key, one.uid))

    async def _annotate(self, key: Key, uid: Uid) -> None:
        claim, notes = self._observer.caches.claims.get(key), self._memory.find(uid)
        if claim is None or notes is None or claim.metadata.uid != uid or claim.metadata.leaving:
            return  # it has gone meanwhile
        name = bound_name(claim)
        patch = annotations_patch(claim, name, notes, self._clock.now()) if name else None
        if patch is None:
            return
        bind({"controller": self._loop.name, "key": key})
        if not await self._publisher.annotate(claim, patch):
            self._loop.wake(key, "annotations", Priority.BACKGROUND, after=self._options.annotate_again)
