"""Ends an expired claim: publishes the expiry first, then applies the shutdown policy, once. If the claim is given more time in between, it goes on."""

from __future__ import annotations

from sandpool.base.clock import Clock
from sandpool.controllers.claim.publish import Publisher
from sandpool.controllers.claim.status import end_event, ended
from sandpool.controllers.claim.view import ClaimView
from sandpool.kube.api import Preconditions, Propagation
from sandpool.kube.errors import NotFound
from sandpool.loop.events import Events
from sandpool.loop.outcome import Done
from sandpool.loop.writes import Writes
from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.sandbox import Sandbox


class Expiry:
    """Applies the shutdown policy of an expired claim."""

    def __init__(self, writes: Writes, publisher: Publisher, clock: Clock, events: Events) -> None:
        self._writes = writes
        self._publisher = publisher
        self._clock = clock
        self._events = events

    async def mark(self, view: ClaimView) -> Done | None:
        """Publishes the expiry, pinned to the observed generation: a concurrent edit makes the write fail, and the claim is decided again."""
        status = ended(view.claim, view.bound, self._clock.now())
        published = await self._publisher.publish(view.claim, status, pinned=True)
        if published is None:
            return Done()
        self._events.emit(CLAIMS, view.claim, *end_event())
        return None

    async def remove(self, claim: SandboxClaim, *, foreground: bool) -> Done:
        meta = claim.metadata
        try:
            await self._writes.delete(
                CLAIMS,
                meta.name,
                meta.namespace,
                preconditions=Preconditions(meta.uid, meta.revision),
                propagation=Propagation.FOREGROUND if foreground else Propagation.BACKGROUND,
            )
        except NotFound:
            pass
        return Done()

    async def clean_up(self, view: ClaimView, sandboxes: tuple[Sandbox, ...]) -> Done | None:
        """Retain: the claim stays and all its sandboxes are deleted; then its status names none."""
        claim = view.claim
        if sandboxes:
            found = await self._publisher.found(claim)
            if found is None:
                return Done()
            # The view may be old by now: the claim may have been given more time, and another sandbox.
            if found.metadata.generation == claim.metadata.generation:
                await delete_sandboxes(self._writes, sandboxes)
            return None
        await self._publisher.publish(claim, ended(claim, view.bound, self._clock.now()))
        return Done()


async def delete_sandboxes(writes: Writes, sandboxes: tuple[Sandbox, ...]) -> None:
    """Deletes each with its observed uid and revision: one that changed meanwhile fails with Conflict and is decided again."""
    for sandbox in sandboxes:
        meta = sandbox.metadata
        try:
            await writes.delete(
                SANDBOXES, meta.name, meta.namespace, preconditions=Preconditions(meta.uid, meta.revision)
            )
        except NotFound:
            pass
