"""The claim controller: observe, decide and apply step by step, until there is nothing left to do now."""

from __future__ import annotations

from collections.abc import Callable

from sandpool.base.clock import Clock
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Cause, Woken
from sandpool.controllers.assigner.feed import Feed
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.claim.annotations import FirstReady
from sandpool.controllers.claim.apply import Applier
from sandpool.controllers.claim.arrival import Arrivals
from sandpool.controllers.claim.audit import Audit
from sandpool.controllers.claim.handover import Handover
from sandpool.controllers.claim.inline import InlineBinder, Times
from sandpool.controllers.claim.memory import Memory, Notes
from sandpool.controllers.claim.observe import Caches, Observer
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.plan import next_step
from sandpool.controllers.claim.publish import Publisher
from sandpool.controllers.claim.steps import Ask, Bind, Hold, Look, Race, Refuse, Start, describe
from sandpool.controllers.claim.transfer import Transfers
from sandpool.controllers.claim.triggers import Triggers
from sandpool.kube.errors import Conflict
from sandpool.kube.priority import UrgentWork
from sandpool.loop.controller import Controller, Limits
from sandpool.loop.events import Events, NullEvents
from sandpool.loop.outcome import Done
from sandpool.loop.reflector import catch_up_at_last
from sandpool.loop.writes import Writes
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.metadata import Key, Uid
from sandpool.model.reasons import Type
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory, note
from sandpool.telemetry.trace import NullTracer, Tracer

__all__ = ["Caches", "ClaimController"]

NAME = "claim"
LIMITS = Limits(workers=16)
"""A server has a fixed rate: more workers would only make each claim wait for all the others."""
SEARCHING = (Ask, Race, Start, Refuse, Hold)
HANDING = (Ask, Race, Start, Bind)
"""Steps by which a claim may get its sandbox."""
STEPS = 12
"""Steps of one reconcile, at most. A claim that needs more keeps changing; it is reconciled again after the others."""

AUDITED_AT_ONCE = 100
"""Comparisons between two turns of the event loop: they take a millisecond or two, and no claim should wait longer for the audit."""


StartedCold = Callable[[SandboxClaim, Cause], object]


class ClaimController:
    """The controller of claims. `writes` must know all of `caches`: the next decision depends on what was just written. Run `loop`."""

    def __init__(
        self,
        writes: Writes,
        caches: Caches,
        assigner: Assigner,
        staleness: Staleness,
        clock: Clock,
        metrics: Metrics,
        history: ReconcileHistory,
        *,
        events: Events = NullEvents(),
        options: Options = Options(),
        limits: Limits = LIMITS,
        tracer: Tracer = NullTracer(),
        urgent: UrgentWork | None = None,
        times: Times | None = None,
        started_cold: StartedCold = lambda claim, cause: None,
    ) -> None:
        """`times` measures how long claims wait. `started_cold` is called when a claim has begun a cold start."""
        urgent = UrgentWork() if urgent is None else urgent
        self._writes, self._caches, self._assigner = writes, caches, assigner
        self._clock, self._options = clock, options
        observer = self._observer = Observer(caches)
        memory = self.memory = Memory(clock.now)
        loop = self.loop = Controller[Key](NAME, self.reconcile, clock, metrics, history, limits, tracer)
        loop.share(urgent)
        transfers = self.transfers = Transfers()
        handover = Handover(writes, observer, assigner, memory, clock, options, self.wake, transfers)
        self._handover = handover
        publisher = Publisher(writes, memory)
        first_ready = self.first_ready = FirstReady(observer, memory, publisher, loop, clock, options)
        first_ready.share(urgent)
        self.inline = InlineBinder(
            observer, assigner, memory, loop, clock, events, options, first_ready, self._ended, urgent, transfers, times
        )
        self._applier = Applier(
            writes,
            observer,
            assigner,
            memory,
            handover,
            publisher,
            clock,
            events,
            options,
            staleness.defaults,
            self.wake,
            started_cold,
        )
        feed = Feed(assigner, staleness, caches.sandboxes, caches.pools, caches.templates, caches.nodes, self.wake)
        self._audit = Audit(observer, assigner, feed, memory, metrics)
        self._arrivals = Arrivals(observer, assigner, memory, loop, clock, options, self.wake)
        self._connect(feed)

    def _connect(self, feed: Feed) -> None:
        """Subscribes to the caches. The assigner is fed first, so that a claim that is woken finds it up to date."""
        feed.connect()
        arrived, edited = self._arrivals.arrived, self._arrivals.edited
        Triggers(self.loop, self._observer, self.memory, self._options, self._ended, arrived, edited).connect()

    async def prepare(self, namespace: str = "") -> None:
        """Awaited as leader before the controllers start. Claims are read before sandboxes: so whatever a predecessor handed to a claim
        that we know of is known as well, and no claim gets a second sandbox."""
        await catch_up_at_last(self._writes, self._caches.claims, self._clock, namespace)
        await catch_up_at_last(self._writes, self._caches.sandboxes, self._clock, namespace)
        self._arrivals.inherit()
        self._assigner.measuring = True

    async def reconcile(self, key: Key) -> Done:
        claim = self._caches.claims.get(key)
        if claim is None:
            return Done()
        notes = self.memory.of(claim)
        notes.at_work = True
        try:
            if notes.gone_until is not None and self._clock.now() < notes.gone_until:
                return Done(again_at=notes.gone_until)
            if notes.transfer is not None or notes.creation:
                await self._handover.settle_open(claim)
            await self._applier.clear_legacy(claim)
            return await self._advance(key, claim.metadata.uid)
        finally:
            self._left(claim, notes)

    def wake(self, woken: Woken) -> None:
        """These claims should ask the assigner again."""
        for claimant in woken:
            notes = self.memory.find(claimant.uid)
            if notes is not None:
                notes.called()
            self.loop.wake(claimant.key, "assigner")

    def audit(self) -> None:
        """Compares memory with the caches and repairs differences; see the metric sandpool_repairs."""
        self.wake(self._audit.run())

    async def audit_forever(self) -> None:
        while True:
            await self._clock.sleep(self._options.audit_every)
            for number, woken in enumerate(self._audit.steps(), start=1):
                self.wake(woken)
                if number % AUDITED_AT_ONCE == 0:
                    await self._clock.sleep(0)

    async def _advance(self, key: Key, uid: Uid) -> Done:
        """Step by step: each step is decided on the state that the previous one left."""
        looked = ""
        for _ in range(STEPS):
            view = self._observer.view(key, looked)
            if view is None or view.claim.metadata.uid != uid:
                return Done()  # gone or replaced: the events of that have been handled
            step = next_step(view, self._options.label_domains, self._clock.now())
            note(describe(step))
            self._observer.searches(view.claim, searching=isinstance(step, SEARCHING))
            if isinstance(step, Look):
                looked = step.name
            done = await self._applier.do(step, view)
            if done is not None:
                return done
            if isinstance(step, HANDING) and self._served(view.claim):
                return Done(afterwards=True)
        raise Conflict(f"claim {key} changed {STEPS} times while it was looked at")

    def _served(self, claim: SandboxClaim) -> bool:
        """Whether the claim is published as Ready. No user waits for what remains to be done, such as annotations."""
        found = self._caches.claims.get(claim.metadata.key)
        return (
            found is not None
            and found.metadata.uid == claim.metadata.uid
            and is_true(found.status.conditions, Type.READY)
        )

    def _left(self, claim: SandboxClaim, notes: Notes) -> None:
        """While a claim is being reconciled its cleanup waits: what is under way for it must not be given to another claim."""
        notes.at_work, notes.taking = False, ""
        found = self._caches.claims.get(claim.metadata.key)
        if found is None or found.metadata.uid != claim.metadata.uid:
            self._ended(claim)

    def _ended(self, claim: SandboxClaim) -> None:
        notes = self.memory.find(claim.metadata.uid)
        if notes is not None and notes.at_work:
            if self._assigner.held_by(claim.metadata.uid) is None:  # it is only in the queue, with nothing reserved
                self.wake(self._assigner.forget(claim.metadata.uid))
            return
        self.memory.drop(claim.metadata.uid)
        self._observer.searches(claim, searching=False)
        self.wake(self._assigner.forget(claim.metadata.uid))
