"""Claims that were just made: each gets its place in line in the moment in which it is heard of, before anybody looks at it.

So whoever is looked at first, the oldest is served first. A plain claim that has to wait need not be looked at before its turn comes, or before
the wait is worth telling.
"""

from __future__ import annotations

from collections.abc import Callable

from sandpool.base.clock import Clock
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Woken
from sandpool.controllers.claim.age import claimant, noted
from sandpool.controllers.claim.memory import Memory
from sandpool.controllers.claim.observe import Observer
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.plan import next_step
from sandpool.controllers.claim.steps import Ask, Race, Step
from sandpool.controllers.claim.view import bound_name
from sandpool.loop.controller import Controller
from sandpool.loop.queue import Priority
from sandpool.model.claim import SandboxClaim
from sandpool.model.labels import SANDBOX_NAME
from sandpool.model.metadata import Key


class Arrivals:
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

    def heard(self, claim: SandboxClaim) -> bool:
        """Whether the claim, which was just made, may be left alone until it is called."""
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
        self._loop.wake(meta.key, "wait", Priority.SECOND, after=self._options.tell_after)
        return True

    def edited(self, claim: SandboxClaim) -> None:
        """One that had ended, and was given more time, has its place at once, too. Whoever is in line keeps the place that it has."""
        if self._loop.at_work and not bound_name(claim) and isinstance(step := self._step(claim), Ask):
            age = self._memory.of(claim).age
            self._wake(self._assigner.line_up(claimant(claim, age), step.pool.metadata.uid) or ())

    def inherit(self) -> None:
        """Everybody who waits when this process begins to lead, the oldest first: what is ready goes to them in that order. Who was made in the
        same second as another is as old as when this process heard of it, or another one noted on it that it had."""
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
