"""Deletes the sandboxes of released claims, and then their pods. What goes wrong is tried again; the garbage collector is behind us."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from sandpool.base.clock import Clock
from sandpool.controllers.sandbox.memory import Memory
from sandpool.controllers.sandbox.observe import Observer
from sandpool.controllers.sandbox.release import Ask, HeadStart, Wait, left_behind, next_step, only_claim
from sandpool.controllers.sandbox.steps import Delete
from sandpool.kube.errors import Conflict, NotFound
from sandpool.loop.controller import Controller
from sandpool.loop.outcome import Done
from sandpool.loop.queue import Priority
from sandpool.loop.writes import Writes
from sandpool.model.kinds import CLAIMS
from sandpool.model.metadata import Key, OwnerReference
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.reconcile_history import note


@dataclass(frozen=True, slots=True)
class Releaser:
    writes: Writes
    observer: Observer
    memory: Memory
    clock: Clock
    loop: Controller[Key]
    head_start: HeadStart

    async def release(self, sandbox: Sandbox) -> Done | None:
        """For a sandbox whose owner is not known to live. None: there is nothing to release, or not yet."""
        claim, meta, now = only_claim(sandbox), sandbox.metadata, self.clock.monotonic()
        if claim is None:
            self.memory.kept(meta.uid)
            return None
        notes = self.memory.of(meta.uid)
        since = notes.ownerless = now if notes.ownerless is None else notes.ownerless
        released = notes.released == claim.uid
        head_start = self.head_start.of(meta.uid, self.memory.released)
        step = next_step(sandbox, released=released, since=since, now=now, head_start=head_start)
        match step:
            case Wait(seconds) if released:
                return Done(again_after=seconds)
            case Wait(seconds):
                self.loop.wake(meta.key, "no owner", Priority.SECOND, after=seconds)
                return None
            case Ask():
                notes.ownerless = None
                if await self._lives(claim, meta.namespace):
                    return Done()  # it is known now, and that has woken us
                self.memory.release(meta.uid, claim.uid, since)
                return Done(again_after=0.0)
            case Delete():
                notes.releasing = True
                await self._delete(step, meta.namespace)
                return Done()

    async def clear(self, key: Key) -> None:
        """What released sandboxes of that name have left behind."""
        for sandbox in tuple(self.memory.remains.get(key, ())):
            for step in left_behind(sandbox, self.observer.pods_of(sandbox), self.observer.caches.pods.leaving):
                await self._delete(step, key.namespace)
            self.memory.cleared(key, sandbox)

    async def _lives(self, claim: OwnerReference, namespace: str) -> bool:
        try:
            found = await self.writes.get(CLAIMS, claim.name, namespace)
        except NotFound as error:
            if error.details.get("name") != claim.name:
                raise  # it does not speak of the claim, but of the resource
            return False
        return found.metadata.uid == claim.uid

    async def _delete(self, step: Delete, namespace: str) -> None:
        note(step)
        try:
            await self.writes.delete(step.resource, step.name, namespace, preconditions=step.preconditions)
        except NotFound:
            pass
        except Conflict:  # it is not what it was: decided again, on what it is now
            with suppress(NotFound):
                await self.writes.get(step.resource, step.name, namespace)
            raise
