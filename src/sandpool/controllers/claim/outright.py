"""Claims that are served in the write that creates them: the same decisions as in a reconcile, on a claim that is not stored yet.

Only what needs nothing but one write is granted: a plain claim, on a pool with a member that is ready. Whatever else there
is to find out or to wait for is left to the reconcile, which looks at the claim once it is stored. What was granted is learned like the
answer to a write of our own, and wakes nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from sandpool.base.clock import Clock
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Claimant, Member
from sandpool.controllers.assigner.forecast import Outlook
from sandpool.controllers.claim.annotations import naming, observed
from sandpool.controllers.claim.backlog import MANY, Backlog
from sandpool.controllers.claim.binding import as_json, bound_status
from sandpool.controllers.claim.first_ready import FirstReady
from sandpool.controllers.claim.memory import Granted, Memory, Notes
from sandpool.controllers.claim.news import bound_news
from sandpool.controllers.claim.observe import Observer, pool_key
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.plan import next_step
from sandpool.controllers.claim.steps import Ask, said
from sandpool.controllers.claim.transfer import transfer
from sandpool.controllers.claim.view import ClaimView
from sandpool.kube.outright import Busy, Grant
from sandpool.loop.controller import Controller
from sandpool.loop.errors import Terminal
from sandpool.loop.events import Events
from sandpool.loop.rush import Rush
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS
from sandpool.model.labels import SANDBOX_NAME
from sandpool.model.metadata import Key, Revision, Uid
from sandpool.model.patches import Patch
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.log import logger

log = logger(__name__)


class Times(Protocol):
    """Who wants to know how long claims wait."""

    def begin(self, claim: SandboxClaim) -> None: ...

    def end(self, claim: SandboxClaim) -> None: ...


class Outright:
    """Grants while the claims' own `loop` is at work: what it does not grant, that one has to see to. `ended` is called when a
    claim was gone before its grant had landed."""

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
    ) -> None:
        self.rush = Rush()
        self.times: Times | None = None
        self.backlog = Backlog(observer.caches.claims, options.bounds)
        self.foresee: Callable[[Key], object] = lambda sandbox: None  # told whose owner is about to change
        self._observer = observer
        self._assigner = assigner
        self._memory = memory
        self._clock = clock
        self._events = events
        self._options = options
        self._loop = loop
        self._first_ready = first_ready
        self._ended = ended
        self._seen = datetime.min.replace(tzinfo=UTC)  # when the last claim that has to wait was

    def grant(self, claim: SandboxClaim) -> Grant | None:
        if (
            not self._loop.at_work or SANDBOX_NAME in claim.metadata.labels
        ):  # where old versions had it: to be cleared up
            return None
        pool, now = self._observer.caches.pools.get(pool_key(claim)), self._clock.now()
        step = next_step(ClaimView(claim, pool=pool), self._options.label_domains, now)
        if not isinstance(step, Ask) or self._observer.legacy(claim) is not None:
            return None
        meta = claim.metadata
        member = self._assigner.take_ready(Claimant(meta.uid, meta.key), step.pool.metadata.uid)
        if member is None:
            return None
        granted = None
        try:
            granted = self._granted(claim, member, said(step), now)
        finally:
            if granted is None:
                self.release(claim)
        return granted

    def pause(self, pool: Key) -> float:
        uid = self._crowded(pool)
        return 0.0 if uid is None else self.backlog.pause(uid, self._assigner.outlook(uid), self._clock.monotonic())

    def no_pause(self, pool: Key) -> Busy | None:
        uid = self._crowded(pool)
        return None if uid is None else self.backlog.outside(uid, self._assigner.outlook(uid), self._clock.monotonic())

    def _crowded(self, pool: Key) -> Uid | None:
        """The pool, if so many wait for it that new ones have to pause."""
        known = self._observer.caches.pools.get(pool)
        if known is None or self._assigner.counts(known.metadata.uid).waiting < MANY:
            return None
        return known.metadata.uid

    def busy(self, claim: SandboxClaim) -> Busy | None:
        pool = self._observer.caches.pools.get(pool_key(claim))
        uid = Uid("") if pool is None else pool.metadata.uid
        if claim.spec.customised:
            outlook = Outlook()  # it starts a sandbox of its own in any case: only the number of those that wait counts
        elif self._assigner.counts(uid).ready:
            return None  # nobody waits before it, or that one would have the member
        else:
            outlook = self._assigner.outlook(uid)
        return self.backlog.busy(claim.metadata.namespace, uid, outlook, self._clock.monotonic())

    def noted(self, claim: SandboxClaim) -> Mapping[str, str]:
        """When it was first seen. Of claims that are made in one second, this says in every later life which of them came first: the revision of each
        moves on when it is told that it waits. No two are seen in the same moment, whatever the clock says."""
        if not (self._options.annotations and self._loop.at_work):
            return {}
        seen = self._clock.now()
        if timedelta() <= self._seen - seen < timedelta(seconds=1):
            seen = self._seen + timedelta(microseconds=1)
        self._seen = seen
        return observed(claim, seen)

    def _granted(self, claim: SandboxClaim, member: Member, why: str, now: datetime) -> _Granted | None:
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
        notes = Notes(now, first_ready=now, told=status, landing=True)
        plan, began = f"{why}; wrote sandbox {name} together with the claim", self._clock.monotonic()
        granted = _Granted(self, claim, sandbox, patch, notes, plan, began)
        if self._options.annotations:
            granted.annotations = naming(claim, name, notes)
        self.foresee(member.key)
        self._memory.put(claim, notes)
        if self.times is not None:
            self.times.begin(claim)
        self.rush.began()
        return granted

    def release(self, claim: SandboxClaim) -> None:
        for claimant in self._assigner.release(claim.metadata.uid):
            self._loop.wake(claimant.key, "assigner")

    def dropped(self, claim: SandboxClaim) -> None:
        self.rush.ended()
        if self.times is not None:
            self.times.end(claim)
        self._memory.drop(claim.metadata.uid)
        self.release(claim)

    def landed(self, claim: SandboxClaim, sandbox: Sandbox, notes: Notes) -> None:
        """The claim first: whoever hears of a sandbox that changed hands looks for its claim."""
        caches, meta = self._observer.caches, claim.metadata
        self.rush.ended()
        caches.claims.learn(claim)
        caches.sandboxes.learn(sandbox)
        self._assigner.commit(meta.uid)
        notes.landing = False
        self._first_ready.follows(claim)
        known = caches.claims.get(meta.key)
        if known is None or known.metadata.uid != meta.uid:
            if self.times is not None:
                self.times.end(claim)
            self._ended(claim)

    def told(self, claim: SandboxClaim, sandbox: Sandbox, plan: str, began: float) -> None:
        try:
            self._loop.tell_of(claim.metadata.key, SandboxClaim.kind, plan, self._clock.monotonic() - began)
            self._events.emit(CLAIMS, claim, *bound_news(claim, sandbox))
        except Exception as error:  # the claim is served: whoever made it must not hear anything else
            log.error("claim served outright, but not told", claim=claim.metadata.key, exc=error)


class _Granted:
    """One grant: see Grant."""

    __slots__ = (
        "_began",
        "_by",
        "_claim",
        "_notes",
        "_plan",
        "annotations",
        "revision",
        "sandbox",
        "status",
        "transfer",
    )

    def __init__(
        self, by: Outright, claim: SandboxClaim, sandbox: Sandbox, patch: Patch, notes: Notes, plan: str, began: float
    ) -> None:
        assert notes.told is not None
        self._by, self._claim, self._notes, self._plan, self._began = by, claim, notes, plan, began
        self.sandbox: Key = sandbox.metadata.key
        self.revision: Revision = sandbox.metadata.revision
        self.transfer = patch
        self.status: Mapping[str, Any] = {
            "sandbox": as_json(notes.told.sandbox),
            "conditions": as_json(notes.told.conditions),
        }
        self.annotations: Mapping[str, str] = {}

    def decided(self, created: Revision, taken: Revision, bound: Revision) -> None:
        self._notes.granted = Granted(created, taken, bound)

    def landed(self, claim: SandboxClaim, sandbox: Sandbox) -> None:
        self._by.landed(claim, sandbox, self._notes)
        self._by.told(claim, sandbox, self._plan, self._began)

    def dropped(self) -> None:
        self._by.dropped(self._claim)
