"""Deletes the sandboxes of released claims, and then their pods.

A cluster's garbage collector would delete them as well, but it serves the whole cluster at about a dozen objects a second. It gets a head start:
if it is idle, it is done by then. When many claims are released at once, it takes them in order, some at a time, and what it is working on it gets
longer for. So nothing is deleted twice, and together there are fewer requests than the collector alone would make.

The sandbox is deleted first and then its pod, each with the uid and the revision that were seen. If either was changed meanwhile, the delete fails
and is decided again: an orphaned sandbox, for example, has a new revision and no claim. The decisions are pure functions; `Releaser` carries them out.
Failures are retried, and the garbage collector is the safety net.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from sandpool.base.clock import Clock
from sandpool.controllers.sandbox.memory import Memory
from sandpool.controllers.sandbox.observe import Observer
from sandpool.controllers.sandbox.steps import Delete, delete
from sandpool.controllers.sandbox.view import extension_owner
from sandpool.kube.errors import Conflict, NotFound
from sandpool.kube.priority import Priority
from sandpool.loop.controller import Controller
from sandpool.loop.outcome import Done
from sandpool.loop.writes import Writes
from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import CLAIMS, PODS, SANDBOXES
from sandpool.model.metadata import Key, Metadata, OwnerReference, Uid
from sandpool.model.pod import Pod
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.reconcile_history import note

ORPHAN = "orphan"
"""The finalizer of an owner that is deleted with propagation policy Orphan: its dependents stay."""
IN_HAND = 20
"""Objects that the garbage collector of Kubernetes works on at once (its workers)."""
_TICK = 0.001  # seconds; a shorter wait counts as over


@dataclass(frozen=True, slots=True)
class Wait:
    """The garbage collector has its head start."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Ask:
    """The claim is not in the cache, and its deletion was not observed: only the server knows whether it was released or is yet to appear."""


@dataclass(frozen=True, slots=True)
class HeadStart:
    """Seconds that the garbage collector has before we delete."""

    usual: float
    in_hand: float

    def of(self, sandbox: Uid, released: Iterable[Uid]) -> float:
        """The head start for one sandbox. `released`: all that still exist, oldest first: the collector works on the first of them."""
        return max(self.usual, self.in_hand) if sandbox in islice(released, IN_HAND) else self.usual


def next_step(sandbox: Sandbox, *, released: bool, since: float, now: float, head_start: float) -> Wait | Ask | Delete:
    """For a sandbox whose claim is not cached. `since`: when that was first noticed; `released`: the claim is known to be gone."""
    left = since + head_start - now
    if left > _TICK:
        return Wait(left)
    return delete(SANDBOXES, sandbox.metadata, "its claim was released", pinned=True) if released else Ask()


def only_claim(sandbox: Sandbox) -> OwnerReference | None:
    """The claim that is the sandbox's only owner. With further owners, the sandbox stays while any of them exists."""
    owner = extension_owner(sandbox)
    alone = owner is not None and owner.kind == SandboxClaim.kind and len(sandbox.metadata.owner_references) == 1
    return owner if alone else None


def releases(claim: Metadata) -> bool:
    """Whether the sandboxes of a deleted claim are to be deleted."""
    return ORPHAN not in claim.finalizers


def left_behind(sandbox: Uid, pods: Iterable[Pod], leaving: Callable[[Pod], bool]) -> tuple[Delete, ...]:
    """Deletes of the pods that a deleted sandbox was the only owner of."""
    return tuple(
        delete(PODS, pod.metadata, "its sandbox was released", pinned=True)
        for pod in pods
        if [owner.uid for owner in pod.metadata.owner_references] == [sandbox] and not leaving(pod)
    )


@dataclass(frozen=True, slots=True)
class Releaser:
    """Carries out the decisions above."""

    writes: Writes
    observer: Observer
    memory: Memory
    clock: Clock
    loop: Controller[Key]
    head_start: HeadStart

    async def release(self, sandbox: Sandbox) -> Done | None:
        """For a sandbox whose owner is not cached. None: nothing to release, or not yet."""
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
                self.loop.wake(meta.key, "no owner", Priority.BACKGROUND, after=seconds)
                return None
            case Ask():
                notes.ownerless = None
                if await self._lives(claim, meta.namespace):
                    return Done()  # it is cached now, and that has woken the sandbox
                self.memory.release(meta.uid, claim.uid, since)
                return Done(again_after=0.0)
            case Delete():
                notes.releasing = True
                await self._delete(step, meta.namespace)
                return Done()

    async def clear(self, key: Key) -> None:
        """Deletes the pods that released sandboxes of that name have left behind."""
        for sandbox in tuple(self.memory.remains.get(key, ())):
            for step in left_behind(sandbox, self.observer.pods_of(sandbox), self.observer.caches.pods.leaving):
                await self._delete(step, key.namespace)
            self.memory.cleared(key, sandbox)

    async def _lives(self, claim: OwnerReference, namespace: str) -> bool:
        try:
            found = await self.writes.get(CLAIMS, claim.name, namespace)
        except NotFound as error:
            if error.details.get("name") != claim.name:
                raise  # it is about the resource, not about the claim
            return False
        return found.metadata.uid == claim.uid

    async def _delete(self, step: Delete, namespace: str) -> None:
        note(step)
        try:
            await self.writes.delete(step.resource, step.name, namespace, preconditions=step.preconditions)
        except NotFound:
            pass
        except Conflict:  # it changed: read it, and decide again
            with suppress(NotFound):
                await self.writes.get(step.resource, step.name, namespace)
            raise
