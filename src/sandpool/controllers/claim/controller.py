"""The claim controller: observe, decide, do, until there is nothing left to do now."""

from __future__ import annotations

from collections.abc import Callable

from sandpool.base.clock import Clock
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.cause import Cause
from sandpool.controllers.assigner.facts import Woken
from sandpool.controllers.assigner.feed import Feed
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.claim.arrival import Arrivals
from sandpool.controllers.claim.audit import Audit
from sandpool.controllers.claim.first_ready import FirstReady
from sandpool.controllers.claim.handover import Handover
from sandpool.controllers.claim.memory import Memory, Notes
from sandpool.controllers.claim.observe import Caches, Observer
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.outright import Outright
from sandpool.controllers.claim.plan import next_step
from sandpool.controllers.claim.prepare import catch_up_at_last
from sandpool.controllers.claim.publish import Publisher
from sandpool.controllers.claim.steps import Ask, Bind, Hold, Look, Race, Refuse, Start, said
from sandpool.controllers.claim.triggers import Triggers
from sandpool.controllers.claim.work import Work
from sandpool.kube.errors import Conflict
from sandpool.loop.controller import Controller, Limits
from sandpool.loop.events import Events, NullEvents
from sandpool.loop.outcome import Done
from sandpool.loop.rush import Rush
from sandpool.loop.writes import Writes
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.metadata import Key, Uid
from sandpool.model.reasons import Type
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import Story, note
from sandpool.telemetry.trace import NullTracer, Tracer

__all__ = ["Caches", "ClaimController"]

NAME = "claim"
LIMITS = Limits(workers=16)
"""A server has a fixed rate: more claims at once would only make each of them wait for all the others."""
SEARCHING = (Ask, Race, Start, Refuse, Hold)
HANDING = (Ask, Race, Start, Bind)
"""Steps by which a claim may come to its sandbox."""
STEPS = 12
"""Of one reconcile; a claim that needs more is in the middle of a storm, and comes back after the others."""

AUDITED_AT_ONCE = 100
"""Comparisons, which take a millisecond or two: no claim should wait longer because of them."""


class ClaimController:
    """`writes` must know all of `caches`: what is decided next depends on what was just written. Run `loop`."""

    def __init__(
        self,
        writes: Writes,
        caches: Caches,
        assigner: Assigner,
        staleness: Staleness,
        clock: Clock,
        metrics: Metrics,
        story: Story,
        *,
        events: Events = NullEvents(),
        options: Options = Options(),
        limits: Limits = LIMITS,
        tracer: Tracer = NullTracer(),
    ) -> None:
        self._writes = writes
        self._caches = caches
        self._assigner = assigner
        self._clock = clock
        self._options = options
        self._observer = Observer(caches)
        self._memory = Memory(clock.now)
        self.loop: Controller[Key] = Controller(NAME, self.reconcile, clock, metrics, story, limits, tracer)
        handover = Handover(writes, self._observer, assigner, self._memory, clock, options, self.wake)
        publisher = Publisher(writes, self._memory)
        self.first_ready = FirstReady(self._observer, self._memory, publisher, self.loop, clock, options)
        self.outright = Outright(
            self._observer, assigner, self._memory, self.loop, clock, events, options, self.first_ready, self._ended
        )
        self._handover = handover
        self._work = Work(
            writes,
            self._observer,
            assigner,
            self._memory,
            handover,
            publisher,
            clock,
            events,
            options,
            staleness.defaults,
            self.wake,
        )
        feed = Feed(assigner, staleness, caches.sandboxes, caches.pools, caches.templates, caches.nodes, self.wake)
        self._audit = Audit(self._observer, assigner, feed, self._memory, metrics)
        feed.connect()
        self._arrivals = Arrivals(self._observer, assigner, self._memory, self.loop, clock, options, self.wake)
        arrivals = self._arrivals
        Triggers(
            self.loop, self._observer, self._memory, options, self._ended, arrivals.heard, arrivals.edited
        ).connect()

    async def prepare(self, namespace: str = "") -> None:
        """Awaited as leader before the controllers start: everything that a predecessor did is known afterwards."""
        await catch_up_at_last(self._writes, self._caches.claims, self._clock, namespace)
        await catch_up_at_last(self._writes, self._caches.sandboxes, self._clock, namespace)
        self._arrivals.inherit()
        self._assigner.measuring = True

    async def reconcile(self, key: Key) -> Done:
        claim = self._caches.claims.get(key)
        if claim is None:
            return Done()
        notes = self._memory.of(claim)
        notes.at_work = True
        try:
            if notes.gone_until is not None and self._clock.now() < notes.gone_until:
                return Done(again_at=notes.gone_until)
            if notes.transfer is not None or notes.creation:
                await self._handover.settle_open(claim)
            await self._work.clear_legacy(claim)
            return await self._advance(key, claim.metadata.uid)
        finally:
            self._left(claim, notes)

    def tell_cold(self, told: Callable[[SandboxClaim, Cause], object]) -> None:
        """`told` is called whenever a claim has begun a sandbox of its own."""
        self._work.started_cold = told

    def share(self, rush: Rush) -> None:
        self.loop.share(rush)
        self.first_ready.share(rush)
        self.outright.rush = rush

    def wake(self, woken: Woken) -> None:
        """These claims should ask the assigner again."""
        for claimant in woken:
            notes = self._memory.find(claimant.uid)
            if notes is not None:
                notes.called()
            self.loop.wake(claimant.key, "assigner")

    def audit(self) -> None:
        """Compares what is remembered with what is cached, and puts right what differs; see the metric sandpool_repairs."""
        self.wake(self._audit.run())

    async def audit_forever(self) -> None:
        while True:
            await self._clock.sleep(self._options.audit_every)
            for number, woken in enumerate(self._audit.steps(), start=1):
                self.wake(woken)
                if number % AUDITED_AT_ONCE == 0:
                    await self._clock.sleep(0)

    async def _advance(self, key: Key, uid: Uid) -> Done:
        """Step by step: each one is decided on what the one before has left."""
        looked = ""
        for _ in range(STEPS):
            view = self._observer.view(key, looked)
            if view is None or view.claim.metadata.uid != uid:
                return Done()  # its end, or its successor, has woken whom it should
            step = next_step(view, self._options.label_domains, self._clock.now())
            note(said(step))
            self._observer.searches(view.claim, searching=isinstance(step, SEARCHING))
            if isinstance(step, Look):
                looked = step.name
            done = await self._work.do(step, view)
            if done is not None:
                return done
            if isinstance(step, HANDING) and self._served(view.claim):
                return Done(afterwards=True)
        raise Conflict(f"claim {key} changed {STEPS} times while it was looked at")

    def _served(self, claim: SandboxClaim) -> bool:
        """Whether it is told that the claim is ready. Nobody waits for what is left, such as annotations."""
        found = self._caches.claims.get(claim.metadata.key)
        return (
            found is not None
            and found.metadata.uid == claim.metadata.uid
            and is_true(found.status.conditions, Type.READY)
        )

    def _left(self, claim: SandboxClaim, notes: Notes) -> None:
        """While a claim is worked on its end waits: what is under way for it must not be given to somebody else."""
        notes.at_work, notes.taking = False, ""
        found = self._caches.claims.get(claim.metadata.key)
        if found is None or found.metadata.uid != claim.metadata.uid:
            self._ended(claim)

    def _ended(self, claim: SandboxClaim) -> None:
        notes = self._memory.find(claim.metadata.uid)
        if notes is not None and notes.at_work:
            if self._assigner.held_by(claim.metadata.uid) is None:  # it is only in line: nothing need be kept for it
                self.wake(self._assigner.forget(claim.metadata.uid))
            return
        self._memory.drop(claim.metadata.uid)
        self._observer.searches(claim, searching=False)
        self.wake(self._assigner.forget(claim.metadata.uid))
