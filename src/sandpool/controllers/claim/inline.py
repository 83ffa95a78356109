"""The inline hook of claims: binds a claim to a ready member in the commit that creates the claim (see kube/inline.py).

It makes the decisions of a reconcile on a claim that is not stored yet, and binds only what one commit can settle: a plain claim on a pool with a
ready member. Everything else is left to the reconcile of the stored claim. The outcome enters the caches like the answer to a write of
our own, and wakes nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from sandpool.base.clock import Clock
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Claimant, Member
from sandpool.controllers.assigner.forecast import Outlook
from sandpool.controllers.claim.annotations import FirstReady, naming, observed
from sandpool.controllers.claim.backlog import MANY, Backlog
from sandpool.controllers.claim.binding import as_json, bound_status
from sandpool.controllers.claim.memory import InlineRevisions, Memory, Notes
from sandpool.controllers.claim.observe import Observer
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.plan import next_step
from sandpool.controllers.claim.status import bound_event
from sandpool.controllers.claim.steps import Ask, describe
from sandpool.controllers.claim.transfer import Transfers, transfer
from sandpool.controllers.claim.view import ClaimView
from sandpool.kube.inline import Annotate, InlineChange, Refusal
from sandpool.kube.priority import UrgentWork
from sandpool.loop.controller import Controller
from sandpool.loop.errors import Terminal
from sandpool.loop.events import Events
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.labels import SANDBOX_NAME
from sandpool.model.metadata import Key, Revision, Uid
from sandpool.model.patches import Patch
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.log import logger

log = logger(__name__)


class Times(Protocol):
    """Measures how long claims wait."""

    def begin(self, claim: SandboxClaim) -> None: ...

    def end(self, claim: SandboxClaim) -> None: ...


class InlineBinder:
    """Decides about new claims while the claim controller's `loop` runs: the loop reconciles all claims that are not bound here. `ended` is called
    for a claim that was deleted before its commit was known to be durable."""

    def __init__(
        self,
        observer: Observer,
        assigner: Assigner,
        memory: Memory,
        loop: Controller[Key],
        clock: Clock,
        events: Events,
        options: Options,
        first_ready: FirstReady,
        ended: Callable[[SandboxClaim], None],
        urgent: UrgentWork,
        transfers: Transfers,
        times: Times | None = None,
    ) -> None:
        self.backlog = Backlog(observer.caches.claims, options.bounds)
        self._observer = observer
        self._assigner = assigner
        self._memory = memory
        self._clock = clock
        self._events = events
        self._options = options
        self._loop = loop
        self._first_ready = first_ready
        self._ended = ended
        self._urgent = urgent
        self._transfers = transfers
        self._times = times
        self._last_observed = datetime.min.replace(tzinfo=UTC)  # of claims that have to wait

    # The hook

    def creating(self, claim: SandboxClaim) -> InlineBinding | Annotate | Refusal | None:
        """Binds the claim. If it has to wait: refuses it, or annotates it with when it was observed, which is its place in the queue."""
        binding = self.bind(claim)
        if binding is not None:
            return binding
        refusal = self.overloaded(claim)
        return Annotate(self.observed(claim)) if refusal is None else refusal

    def delay(self, namespace: str, body: Mapping[str, Any]) -> float:
        uid = self._crowded(awaited_pool(namespace, body))
        return 0.0 if uid is None else self.backlog.pause(uid, self._assigner.outlook(uid), self._clock.monotonic())

    def overflow(self, namespace: str, body: Mapping[str, Any]) -> Refusal | None:
        uid = self._crowded(awaited_pool(namespace, body))
        return None if uid is None else self.backlog.outside(uid, self._assigner.outlook(uid), self._clock.monotonic())

    # Its decisions

    def bind(self, claim: SandboxClaim) -> InlineBinding | None:
        """Reserves a ready member for the claim. None: there is none, or this claim needs more than one commit."""
        if (
            not self._loop.at_work or SANDBOX_NAME in claim.metadata.labels
        ):  # a label of old versions, to be removed by a reconcile
            return None
        pool, now = self._observer.caches.pools.get(claim.pool_key), self._clock.now()
        step = next_step(ClaimView(claim, pool=pool), self._options.label_domains, now)
        if not isinstance(step, Ask) or self._observer.legacy(claim) is not None:
            return None
        meta = claim.metadata
        member = self._assigner.take_ready(Claimant(meta.uid, meta.key), step.pool.metadata.uid)
        if member is None:
            return None
        binding = None
        try:
            binding = self._binding(claim, member, describe(step), now)
        finally:
            if binding is None:
                self._release(claim)
        return binding

    def overloaded(self, claim: SandboxClaim) -> Refusal | None:
        """Why a claim that could not be bound may not be stored either. None: it may, and wait."""
        pool = self._observer.caches.pools.get(claim.pool_key)
        uid = Uid("") if pool is None else pool.metadata.uid
        if claim.spec.customised:
            outlook = Outlook()  # it starts cold in any case: only the number of waiting claims counts
        elif self._assigner.counts(uid).ready:
            return None  # no claim waits before it, or that claim would have the member
        else:
            outlook = self._assigner.outlook(uid)
        return self.backlog.busy(claim.metadata.namespace, uid, outlook, self._clock.monotonic())

    def observed(self, claim: SandboxClaim) -> Mapping[str, str]:
        """The annotation that says when a claim which has to wait was first observed. Of claims that are created in one second, it tells every later
        process which came first: their revisions change as they are updated. No two are observed at the same moment, whatever the clock says."""
        if not (self._options.annotations and self._loop.at_work):
            return {}
        moment = self._clock.now()
        if timedelta() <= self._last_observed - moment < timedelta(seconds=1):
            moment = self._last_observed + timedelta(microseconds=1)
        self._last_observed = moment
        return observed(claim, moment)

    def _crowded(self, pool: Key | None) -> Uid | None:
        """The pool, if so many claims wait for it that requests for more are delayed."""
        known = None if pool is None else self._observer.caches.pools.get(pool)
        if known is None or self._assigner.counts(known.metadata.uid).waiting < MANY:
            return None
        return known.metadata.uid

    def _binding(self, claim: SandboxClaim, member: Member, why: str, now: datetime) -> InlineBinding | None:
        sandbox = self._observer.as_member(member)
        if sandbox is None or self._observer.caches.sandboxes.leaving(sandbox):
            return None
        status = bound_status(claim, sandbox, now)
        if not is_true(status.conditions, Type.READY):
            return None
        try:
            patch = transfer(sandbox, claim, self._observer.origin(sandbox), pinned=True)
        except Terminal:
            return None
        name = member.key.name
        notes = Notes(now, first_ready=now, published=status, committing=True)
        plan, began = f"{why}; wrote sandbox {name} together with the claim", self._clock.monotonic()
        binding = InlineBinding(self, claim, sandbox, patch, notes, plan, began)
        if self._options.annotations:
            binding.annotations = naming(claim, name, notes)
        self._transfers.announce(member.key)
        self._memory.put(claim, notes)
        if self._times is not None:
            self._times.begin(claim)
        self._urgent.began()
        return binding

    # What becomes of a binding

    def abandoned(self, claim: SandboxClaim) -> None:
        self._urgent.ended()
        if self._times is not None:
            self._times.end(claim)
        self._memory.drop(claim.metadata.uid)
        self._release(claim)

    def committed(self, claim: SandboxClaim, sandbox: Sandbox, notes: Notes) -> None:
        """Puts both objects into their caches, the claim first: handlers of a sandbox whose owner changed look up its claim."""
        caches, meta = self._observer.caches, claim.metadata
        self._urgent.ended()
        caches.claims.upsert(claim)
        caches.sandboxes.upsert(sandbox)
        self._assigner.commit(meta.uid)
        notes.committing = False
        self._first_ready.follows(claim)
        known = caches.claims.get(meta.key)
        if known is None or known.metadata.uid != meta.uid:
            if self._times is not None:
                self._times.end(claim)
            self._ended(claim)

    def record(self, claim: SandboxClaim, sandbox: Sandbox, plan: str, began: float) -> None:
        """Adds the binding to the reconcile history and emits its Event."""
        try:
            self._loop.record(claim.metadata.key, SandboxClaim.kind, plan, self._clock.monotonic() - began)
            self._events.emit(CLAIMS, claim, *bound_event(claim, sandbox))
        except Exception as error:  # the claim is bound: its creator must not get an error
            log.error("claim bound inline, but no Event emitted", claim=claim.metadata.key, exc=error)

    def _release(self, claim: SandboxClaim) -> None:
        for claimant in self._assigner.release(claim.metadata.uid):
            self._loop.wake(claimant.key, "assigner")


class InlineBinding:
    """A member that is reserved for one claim, as an addition to the commit of that claim: see kube/inline.py."""

    __slots__ = ("_began", "_binder", "_claim", "_notes", "_plan", "annotations", "changes", "status")

    def __init__(
        self,
        binder: InlineBinder,
        claim: SandboxClaim,
        sandbox: Sandbox,
        patch: Patch,
        notes: Notes,
        plan: str,
        began: float,
    ) -> None:
        assert notes.published is not None
        self._binder, self._claim, self._notes, self._plan, self._began = binder, claim, notes, plan, began
        meta = sandbox.metadata
        self.changes: Sequence[InlineChange] = (InlineChange(SANDBOXES, meta.key, meta.revision, patch),)
        self.status: Mapping[str, Any] = {
            "sandbox": as_json(notes.published.sandbox),
            "conditions": as_json(notes.published.conditions),
        }
        self.annotations: Mapping[str, str] = {}

    def submitted(self, created: Revision, changed: Sequence[Revision], final: Revision) -> None:
        self._notes.inline = InlineRevisions(created, changed[0], final)

    def committed(self, final: SandboxClaim, changed: Sequence[Sandbox]) -> None:
        self._binder.committed(final, changed[0], self._notes)
        self._binder.record(final, changed[0], self._plan, self._began)

    def abandoned(self) -> None:
        self._binder.abandoned(self._claim)


def awaited_pool(namespace: str, body: Mapping[str, Any]) -> Key | None:
    """The pool whose members a claim would wait for, from a body that is not validated yet. None: it names none, or starts a sandbox of its own."""
    spec = body.get("spec")
    if not isinstance(spec, dict) or spec.get("env") or spec.get("volumeClaimTemplates"):
        return None
    ref = spec.get("warmPoolRef")
    name = ref.get("name") if isinstance(ref, dict) else None
    return Key(namespace, name) if isinstance(name, str) else None
