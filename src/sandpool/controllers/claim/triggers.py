"""What wakes a claim: each cache event is reduced to what it means for the claim; our own writes mean nothing.

At once: what changes a decision or what a user waits for. Later: the status of a sandbox that starts. Never: the answers to our
own writes, which were handled when they came, and whatever happens to a pool or a template once a claim has its sandbox.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sandpool.controllers.claim.memory import InlineRevisions, Memory, Notes
from sandpool.controllers.claim.observe import Observer
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.status import held_up, same
from sandpool.controllers.claim.view import bound_name
from sandpool.controllers.protection import policy_facts
from sandpool.kube.priority import Priority
from sandpool.loop.controller import Controller
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import Condition, find
from sandpool.model.expiry import claim_end
from sandpool.model.labels import SANDBOX_NAME
from sandpool.model.metadata import Key, Uid
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate


def concerns(claim: SandboxClaim) -> object:
    """The parts of a claim that its controller reads and does not write. Its status is compared with what was written."""
    meta = claim.metadata
    return meta.uid, meta.generation, meta.leaving, SANDBOX_NAME in meta.labels


def misnamed(claim: SandboxClaim) -> tuple[str, str] | None:
    """The sandbox in the annotation and the bound one, if they differ."""
    named, bound = claim.metadata.annotations.get(SANDBOX_NAME, ""), bound_name(claim)
    return (named, bound) if named and bound and named != bound else None


def decisive(sandbox: Sandbox) -> object:
    """The parts of its sandbox that a claim forwards at once."""
    meta, status = sandbox.metadata, sandbox.status
    ready = find(status.conditions, Type.READY)
    finished = find(status.conditions, Type.FINISHED)
    verdict = None if ready is None else (ready.status, ready.reason)
    return controller_uid(sandbox), meta.leaving, status.pod_ips, verdict, _plain(finished)


def remark(sandbox: Sandbox) -> object:
    """The parts that can wait a moment."""
    return _plain(find(sandbox.status.conditions, Type.READY)), sandbox.status.service_fqdn, held_up(sandbox)


def controller_uid(sandbox: Sandbox | None) -> Uid | None:
    owner = None if sandbox is None else sandbox.metadata.controller
    return None if owner is None else owner.uid


def of_pool(pool: SandboxWarmPool) -> object:
    return pool.metadata.uid, pool.metadata.leaving, pool.spec.sandbox_template_ref.name, pool.spec.replicas > 0


def of_template(template: SandboxTemplate) -> object:
    return template.metadata.uid, template.metadata.leaving, template.metadata.generation


@dataclass(frozen=True, slots=True)
class Triggers:
    """Connects the caches with the queue. `arrived` returns whether a new claim needs no reconcile now; `edited` is called for a changed claim,
    `ended` for one that is gone."""

    loop: Controller[Key]
    observer: Observer
    memory: Memory
    options: Options
    ended: Callable[[SandboxClaim], None]
    arrived: Callable[[SandboxClaim], bool] = lambda claim: False
    edited: Callable[[SandboxClaim], None] = lambda claim: None

    def connect(self) -> None:
        caches, observer = self.observer.caches, self.observer
        caches.claims.subscribe(self._claim)
        caches.sandboxes.subscribe(self._sandbox)
        self.loop.on(caches.pools, observer.asking, reduce=of_pool)
        self.loop.on(caches.templates, observer.asking_for, reduce=of_template)
        self.loop.on(caches.policies, observer.asking_behind, reduce=policy_facts)

    def _claim(self, old: SandboxClaim | None, new: SandboxClaim | None) -> None:
        if new is None:
            assert old is not None
            self.ended(old)
            return
        notes = self.memory.of(new)
        notes.gone_until = None
        wrong = misnamed(new) if self.options.annotations else None
        if wrong is not None and old is not None and misnamed(old) != wrong:
            # A patch of an earlier leader may land late. Ours may be under way, so there is no hurry.
            self.loop.wake(new.metadata.key, "another name", after=self.options.annotate_again)
        if notes.inline is not None and new.metadata.revision in (notes.inline.created, notes.inline.bound):
            self._bound_inline(new, notes.inline)
        elif old is None:
            if not self.arrived(new):
                self.loop.wake(new.metadata.key, SandboxClaim.kind)
        elif concerns(old) != concerns(new):
            self.edited(new)
            self.loop.wake(new.metadata.key, SandboxClaim.kind)
        elif same(old.status, new.status) or (notes.published is not None and same(new.status, notes.published)):
            return
        elif bound_name(old) != bound_name(new):
            self.loop.wake(new.metadata.key, "another sandbox")
        else:
            pause = self.memory.dispute(notes, self.options.moment)
            self.loop.wake(new.metadata.key, "another status", after=pause)

    def _sandbox(self, old: Sandbox | None, new: Sandbox | None) -> None:
        if new is None or (old is not None and controller_uid(old) != controller_uid(new)):
            self._former(old or new)
        if new is None:
            return
        claim = self.observer.owning(new)
        if claim is None:
            return
        key = claim.metadata.key
        if controller_uid(old) != controller_uid(new):
            notes = self.memory.find(claim.metadata.uid)
            if notes is None or not _expected(notes, new):
                self.loop.wake(key, "new sandbox")
        elif old is not None and decisive(old) != decisive(new):
            if (notes := self.memory.find(claim.metadata.uid)) is not None:
                notes.called()
            self.loop.wake(key, Sandbox.kind)
        elif old is not None and remark(old) != remark(new):
            self.loop.wake(key, Sandbox.kind, after=self.options.moment)

    def _bound_inline(self, claim: SandboxClaim, inline: InlineRevisions) -> None:
        """Nothing to do, unless its sandbox, whose event may come first, has changed since."""
        if claim.metadata.revision == inline.created:
            return  # it is bound already, as its next event shows
        sandbox = self.observer.caches.sandboxes.get(Key(claim.metadata.namespace, bound_name(claim)))
        if sandbox is None or sandbox.metadata.revision > inline.sandbox:
            self.loop.wake(claim.metadata.key, Sandbox.kind)
        elif claim_end(claim) is not None:  # a reconcile has to schedule its expiry
            self.loop.wake(claim.metadata.key, SandboxClaim.kind, Priority.BACKGROUND)

    def _former(self, sandbox: Sandbox | None) -> None:
        """A sandbox is gone or has another owner: its claim has lost it, or a waiting claim can use its name."""
        if sandbox is None:
            return
        if (claim := self.observer.owning(sandbox)) is not None:
            self.loop.wake(claim.metadata.key, "lost sandbox")
        named = self.observer.caches.claims.get(sandbox.metadata.key)
        if named is not None and self.observer.wants_name(named):
            self.loop.wake(named.metadata.key, "free name")


def _expected(notes: Notes, sandbox: Sandbox) -> bool:
    """The sandbox that the running reconcile takes, or the very state that an inline binding wrote."""
    if notes.at_work:
        return notes.taking == sandbox.metadata.name
    return notes.inline is not None and notes.inline.sandbox == sandbox.metadata.revision


def _plain(condition: Condition | None) -> object:
    """A condition without the generation that it was observed of: that alone needs no reconcile."""
    if condition is None:
        return None
    return condition.status, condition.reason, condition.message, condition.last_transition_time
