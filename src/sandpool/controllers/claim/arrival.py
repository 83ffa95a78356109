"""New claims get their place in the wait queue when their watch event arrives, before their first reconcile.

So the oldest claim is served first, in whatever order claims are reconciled. A plain claim that has to wait is not reconciled before its turn comes, or before
its wait is worth reporting.
"""

from __future__ import annotations

from collections.abc import Callable

from sandpool.base.clock import Clock
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Woken
from sandpool.controllers.claim.memory import Memory, claimant, noted
from sandpool.controllers.claim.observe import Observer
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.plan import next_step
from sandpool.controllers.claim.steps import Ask, Race, Step
from sandpool.controllers.claim.view import bound_name
from sandpool.kube.priority import Priority
from sandpool.loop.controller import Controller
from sandpool.model.claim import SandboxClaim
from sandpool.model.labels import SANDBOX_NAME
from sandpool.model.metadata import Key


class Arrivals:
    """Puts new claims into the wait queue of their pool."""

    def __init__(
        self,
        observer: Observer,
        assigner: Assigner,
        memory: Memory,
        loop: Controller[Key],
        clock: Clock,
        options: Options,
        wake: Callable[[Woken], None],
    ) -> None:
        self._observer = observer
        self._assigner = assigner
        self._memory = memory
        self._loop = loop
        self._clock = clock
        self._options = options
        self._wake = wake

    def arrived(self, claim: SandboxClaim) -> bool:
        """Gives a new claim its place. True if it needs no reconcile until it is woken."""
        spec, meta = claim.spec, claim.metadata
        if not self._loop.at_work or spec.customised or bound_name(claim) or meta.leaving:
            return False
        pool = self._observer.waited_for(claim)
        if pool is None:
            return False
        notes = self._memory.arrived(claim)
        woken = self._assigner.line_up(claimant(claim, notes.age), pool.metadata.uid)
        if woken is None:
            return False
        others = tuple(one for one in woken if one.uid != meta.uid)
        if others:
            self._wake(others)
        plain = spec.additional_pod_metadata is None and spec.lifecycle is None and SANDBOX_NAME not in meta.labels
        if len(others) < len(woken) or not plain or self._observer.legacy(claim) is not None:
            return False
        notes.waits_since = self._clock.now()
        self._loop.wake(meta.key, "wait", Priority.BACKGROUND, after=self._options.report_after)
        return True

    def edited(self, claim: SandboxClaim) -> None:
        """An expired claim that was given more time gets its place at once, too. A claim that is in the queue keeps its place."""
        if self._loop.at_work and not bound_name(claim) and isinstance(step := self._step(claim), Ask):
            age = self._memory.of(claim).age
            self._wake(self._assigner.line_up(claimant(claim, age), step.pool.metadata.uid) or ())

    def inherit(self) -> None:
        """Queues all claims that wait when this process begins to lead, oldest first. Claims of the same second are ordered by when a controller first
        observed them, as annotated, or else by when this process did."""
        found = []
        for claim in self._observer.unserved():
            step = self._step(claim)
            if isinstance(step, Ask | Race):
                notes = self._memory.of(claim)
                notes.age = noted(notes.age, claim)
                found.append((notes.age, claim, step))
        found.sort(key=lambda one: one[0])
        for age, claim, step in found:
            woken = self._assigner.line_up(claimant(claim, age), step.pool.metadata.uid, begun=isinstance(step, Race))
            self._wake(woken or ())
        self._loop.queue.lead([claim.metadata.key for _, claim, _ in found])

    def _step(self, claim: SandboxClaim) -> Step | None:
        view = self._observer.view(claim.metadata.key)
        return None if view is None else next_step(view, self._options.label_domains, self._clock.now())
