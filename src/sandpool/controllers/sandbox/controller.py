"""The Sandbox controller: observe, plan, apply, publish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from sandpool.base.clock import Clock
from sandpool.controllers.sandbox.apply import Outcome, apply
from sandpool.controllers.sandbox.memory import Memory, Notes
from sandpool.controllers.sandbox.observe import Caches, Found, Observer
from sandpool.controllers.sandbox.options import Options
from sandpool.controllers.sandbox.plan import plan_sandbox
from sandpool.controllers.sandbox.release import HeadStart, Releaser
from sandpool.controllers.sandbox.status import (
    Trouble,
    beginning,
    events_of,
    expired_status,
    status_of,
    status_patch,
    unborn,
    urgent,
)
from sandpool.controllers.sandbox.steps import Plan, decided_on
from sandpool.controllers.sandbox.triggers import Triggers
from sandpool.controllers.sandbox.view import SandboxView, pooled
from sandpool.kube.errors import NotFound
from sandpool.loop.controller import Controller, Limits
from sandpool.loop.events import Events, NullEvents
from sandpool.loop.outcome import Done
from sandpool.loop.writes import Writes
from sandpool.model.kinds import SANDBOXES
from sandpool.model.metadata import Key
from sandpool.model.sandbox import SandboxStatus
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory, note
from sandpool.telemetry.trace import NullTracer, Tracer

NAME = "sandbox"
_TICK = 0.001  # seconds; a shorter wait counts as over


class SandboxController:
    """The controller of sandboxes. `writes` must know all of `caches`: the next decision depends on what was just written. Run `loop`. `pressed`:
    whether claims wait for members of pools, which makes members urgent."""

    def __init__(
        self,
        writes: Writes,
        caches: Caches,
        clock: Clock,
        metrics: Metrics,
        history: ReconcileHistory,
        *,
        events: Events = NullEvents(),
        options: Options = Options(),
        limits: Limits = Limits(),
        tracer: Tracer = NullTracer(),
        pressed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._writes = writes
        self._clock = clock
        self._events = events
        self._options = options
        self.observer = Observer(caches)
        self._memory = Memory()
        self.loop: Controller[Key] = Controller(NAME, self.reconcile, clock, metrics, history, limits, tracer)
        Triggers(self.loop, self.observer, options, self._memory, clock, pressed).connect()
        self._releaser: Releaser | None = None
        if options.release_after is not None:
            head_start = HeadStart(options.release_after, options.release_in_hand)
            self._releaser = Releaser(writes, self.observer, self._memory, clock, self.loop, head_start)

    @property
    def remembered(self) -> int:
        """How many sandboxes are remembered."""
        return len(self._memory)

    async def reconcile(self, key: Key) -> Done:
        releaser = self._releaser
        if releaser is not None and key in self._memory.remains:
            await releaser.clear(key)
        view = self.observer.view(key)
        if view is None or view.sandbox.metadata.leaving:
            return Done()  # what it controls is garbage-collected with it
        if releaser is not None and not view.owner_alive:
            released = await releaser.release(view.sandbox)
            if released is not None:
                return released
        view, plan = await self._decided(key, view)
        if not plan.steps:  # nothing was awaited since, so the view is current
            return await self._concluded(view, plan, Outcome())
        outcome = await self._applied(key, plan)
        if outcome.found:
            plan, outcome = await self._settled(key, plan, outcome)
        after = self.observer.view(key, outcome.found)
        # If it was replaced or edited meanwhile, that has woken it already.
        same = after is not None and decided_on(after.sandbox) == plan.decided_on
        return await self._concluded(after if same else None, plan, outcome)

    async def _concluded(self, view: SandboxView | None, plan: Plan, outcome: Outcome) -> Done:
        wait = None if view is None else await self._publish(view, plan, outcome)
        outcome.raise_all()
        return Done(again_at=plan.look_again_at, again_after=wait)

    async def _decided(self, key: Key, view: SandboxView) -> tuple[SandboxView | None, Plan]:
        """The plan, and the view that it was decided on; no view if the sandbox is gone. An expiry is published before anything is
        deleted; then the plan is made again, on the published state."""
        now = self._clock.now()
        plan = plan_sandbox(view, self._options, now)
        if not plan.expired:
            return await self._confirmed(key, view, plan)
        await self._publish(view, plan, Outcome())
        published = self.observer.view(key)
        return (None, Plan()) if published is None else (published, plan_sandbox(published, self._options, now))

    async def _confirmed(
        self, key: Key, view: SandboxView, plan: Plan, found: Sequence[Found] = ()
    ) -> tuple[SandboxView | None, Plan]:
        """Asks the server before something is created again or adopted. An object that we created is missing, or one of the sandbox's name has no
        owner: perhaps because the sandbox is gone and its DELETED event has not arrived. Then whatever is created for it would be
        garbage-collected again and again, and whatever it adopts as well, even if the user wanted to keep it. Objects that keep vanishing are
        created less and less often."""
        if not plan.steps:
            return view, plan
        now, basis = self._clock.now(), plan.decided_on
        made = None if basis is None else self._memory.of(basis.uid).not_before(self._options.moment)
        if not plan.takes and (made is None or not plan.makes):
            return view, plan
        wait = 0.0 if made is None else made - self._clock.monotonic()
        if wait > _TICK:
            return view, plan.gaining_nothing_before(now + timedelta(seconds=wait))
        try:
            await self._writes.get(SANDBOXES, key.name, key.namespace)
        except NotFound:
            return None, Plan()
        seen = self.observer.view(key, found)
        if seen is None or seen.sandbox.metadata.leaving:
            return None, Plan()
        return seen, plan_sandbox(seen, self._options, now).within(plan)

    async def _settled(self, key: Key, plan: Plan, outcome: Outcome) -> tuple[Plan, Outcome]:
        """An object existed already: decides once more, with what the server showed."""
        view = self.observer.view(key, outcome.found)
        if view is None:
            return plan, outcome
        plan = plan_sandbox(view, self._options, self._clock.now())
        _, plan = await self._confirmed(key, view, plan, outcome.found)
        again = await self._applied(key, plan)
        again.found = [*outcome.found, *again.found]
        return plan, again

    async def _applied(self, key: Key, plan: Plan) -> Outcome:
        outcome = await apply(self._writes, key.namespace, plan, lambda: self._holds(key, plan))
        unmakes = plan.unmakes
        if plan.decided_on is not None and (outcome.made or unmakes):
            notes = self._memory.of(plan.decided_on.uid)
            if outcome.made:
                notes.made.count(self._clock.monotonic())
            if unmakes:
                notes.made.end()
        return outcome

    def _holds(self, key: Key, plan: Plan) -> bool:
        """Whether the sandbox is still what the plan was made for."""
        sandbox = self.observer.caches.sandboxes.get(key)
        return sandbox is not None and decided_on(sandbox) == plan.decided_on

    async def _publish(self, view: SandboxView, plan: Plan, outcome: Outcome) -> float | None:
        """Publishes a changed status: at once if a user waits for it, else after a while. Returns the seconds until a deferred write is due,
        or None."""
        sandbox, notes = view.sandbox, self._memory.of(view.sandbox.metadata.uid)
        trouble, key = outcome.trouble(plan), sandbox.metadata.key
        if not plan.expired and unborn(view, trouble) and pooled(sandbox):
            wait = self._wait(notes, self._options.patience)
            if wait > _TICK:
                return wait
        status = self._status(view, plan, trouble)
        patch = status_patch(sandbox, status)
        if patch is None:
            notes.unpublished, notes.published = None, sandbox.status
            return None
        if not urgent(sandbox.status, status):
            patient = pooled(sandbox) and beginning(view, status)
            wait = self._wait(notes, self._options.patience if patient else self._options.moment)
            if wait > _TICK:
                return wait
        notes.published = status  # before the write: its answer reaches the cache before it returns
        note("; ".join([f"publish {one.type} {one.status} {one.reason}" for one in status.conditions]))
        try:
            await self._writes.patch_status(SANDBOXES, key.name, patch, key.namespace)
        except NotFound:
            return None  # its DELETED event will wake us
        notes.unpublished = None
        kept = self.observer.caches.sandboxes.get(key)
        if kept is not None and kept.status == status:
            notes.published = kept.status  # share the cached object
        for one in events_of(sandbox.status, status):
            self._events.emit(SANDBOXES, sandbox, one.kind, one.reason, one.message, one.action)
        return None

    def _wait(self, notes: Notes, most: float) -> float:
        """Seconds that a status change has still to wait, which may wait for `most` in all."""
        now = self._clock.monotonic()
        return notes.waits_since(now) + most - now

    def _status(self, view: SandboxView, plan: Plan, trouble: Trouble) -> SandboxStatus:
        if plan.expired:
            return expired_status(view.sandbox, trouble, self._clock.now())
        return status_of(view, trouble, self._options, self._clock.now())
