"""The warm pool controller: observe, plan, apply, publish."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sandpool.base.clock import Clock
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Woken
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.controllers.pool.apply import Applier
from sandpool.controllers.pool.memory import MemberIndex, Memory
from sandpool.controllers.pool.observe import Basis, Caches, Observer, basis_of
from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.plan import Outcome, Plan, look_again_at, plan_pool
from sandpool.controllers.pool.status import Haste, event_of, haste, status_of, status_patch
from sandpool.controllers.pool.triggers import Triggers
from sandpool.controllers.pool.view import PoolView
from sandpool.kube.errors import Invalid, NotFound
from sandpool.loop.controller import Controller, Limits
from sandpool.loop.events import Events, NullEvents
from sandpool.loop.outcome import Done
from sandpool.loop.writes import Writes
from sandpool.model.kinds import POOLS
from sandpool.model.metadata import Key
from sandpool.model.pool import SandboxWarmPool, SandboxWarmPoolStatus
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory, note
from sandpool.telemetry.trace import NullTracer, Tracer

__all__ = ["NAME", "Caches", "PoolController"]

NAME = "pool"
_TICK = 0.001  # seconds; a shorter wait counts as over


class PoolController:
    """The controller of pools. `writes` must know all of `caches`. Run `loop`. `wake_claims` is called with the claims that should ask the assigner
    again."""

    def __init__(
        self,
        writes: Writes,
        caches: Caches,
        assigner: Assigner,
        staleness: Staleness,
        random: Callable[[], float],
        clock: Clock,
        metrics: Metrics,
        history: ReconcileHistory,
        *,
        wake_claims: Callable[[Woken], object],
        events: Events = NullEvents(),
        options: Options = Options(),
        limits: Limits = Limits(workers=4),
        tracer: Tracer = NullTracer(),
    ) -> None:
        self._writes = writes
        self._clock = clock
        self._events = events
        self._options = options
        self._member_index = MemberIndex(caches.sandboxes, staleness, options)
        self._observer = Observer(caches, self._member_index, assigner, staleness)
        self._applier = Applier(writes, caches.sandboxes, assigner, staleness, wake_claims, random, options)
        self.loop: Controller[Key] = Controller(NAME, self.reconcile, clock, metrics, history, limits, tracer)
        Triggers(self.loop, caches, clock, options).connect(self._member_index)

    @property
    def remembered(self) -> int:
        """How many pools are remembered."""
        return len(self._member_index)

    async def reconcile(self, key: Key) -> Done:
        outcome = Outcome()
        if (pool := self._observer.pool(key)) is None:
            self._member_index.forget(key)  # its members are garbage-collected with it
            return Done()
        memory = self._member_index.memory(pool)
        memory.expire_refusal(self._clock.monotonic())
        await self._applier.settle(pool, memory, outcome)
        began = self._clock.now()
        decided = await self._decided(pool, memory)
        if decided is None:
            return Done()  # being deleted or replaced: that has woken us
        view, plan = decided
        memory.hold, memory.pause, memory.tokens, memory.repaired = plan.hold, plan.pause, plan.tokens, plan.repaired
        current = partial(self._current, basis_of(view.pool, view.template))
        await self._applier.apply(view, memory, plan, current, outcome)
        wait = await self._publish(key, memory)
        outcome.raise_all()
        again_at = look_again_at(plan, memory.roster, began)
        return Done(again_at=again_at, again_after=self._again(memory, plan, outcome, wait))

    async def _decided(self, pool: SandboxWarmPool, memory: Memory) -> tuple[PoolView, Plan] | None:
        """The view and the plan. If the pool may be gone although the cache still shows it, the server is asked first: whatever a deleted pool
        adopts or creates is garbage-collected, even members that the user wanted to keep (`kubectl delete --cascade=orphan`)."""
        view = self._view_of(pool)
        if view is None:
            return None
        plan = plan_pool(view, self._options, self._clock.now())
        if not (plan.adopt or plan.discard or (plan.creates and memory.doubted)):
            return view, plan
        memory.doubted = False
        try:
            await self._writes.get(POOLS, pool.metadata.name, pool.metadata.namespace)
        except NotFound:
            return None
        except BaseException:
            memory.doubted = True
            raise
        view = self._view_of(pool)
        return None if view is None else (view, plan_pool(view, self._options, self._clock.now()).within(plan))

    def _view_of(self, pool: SandboxWarmPool) -> PoolView | None:
        view = self._observer.view(pool.metadata.key)
        return None if view is None or view.pool.metadata.uid != pool.metadata.uid else view

    def _current(self, basis: Basis) -> bool:
        """Whether the pool and its template are still those of the decision. Changed counts are for the next pass."""
        return self._observer.basis(basis.key) == basis

    def _again(self, memory: Memory, plan: Plan, outcome: Outcome, wait: float | None) -> float | None:
        waits, now = [] if wait is None else [wait], self._clock.monotonic()
        if outcome.refused:
            memory.refused_until = now + self._options.refusal_pause
        if memory.refused is not None:
            waits.append(memory.refused_until - now)
        if outcome.reserved:  # no event says when a claim releases a member
            waits.append(self._options.moment)
        elif plan.more:
            waits.append(0.0)
        if outcome.again:
            waits.append(0.0)
        return min(waits, default=None)

    async def _publish(self, key: Key, memory: Memory) -> float | None:
        """Publishes the status if it differs. Returns the seconds until a deferred write is due, or None."""
        view = self._observer.view(key)
        if view is None:
            return None
        pool, status = view.pool, status_of(view, self._clock.now())
        patch = status_patch(pool, status)
        if patch is None:
            memory.unpublished, memory.published = None, status
            return None
        wait = self._wait(memory, haste(pool.status, status))
        if wait > _TICK:
            return wait
        note("; ".join(f"publish {one.type} {one.status} {one.reason}" for one in status.conditions))
        memory.published = status
        try:
            await self._writes.patch_status(POOLS, key.name, patch, key.namespace)
        except NotFound:
            return None  # its DELETED event will wake us
        except Invalid as error:
            if error.causes:
                raise
            return None  # another pool has the name now; its events will wake us
        memory.unpublished, memory.written = None, self._clock.monotonic()
        self._emit_event(view, status)
        return None

    def _wait(self, memory: Memory, urgency: Haste) -> float:
        now, moment = self._clock.monotonic(), self._options.moment
        if memory.unpublished is None:
            memory.unpublished = now
        if urgency is Haste.NOW:
            return 0.0
        written = memory.written if memory.written is not None else now - moment
        due = written + moment
        return (due if urgency is Haste.SOON else max(due, memory.unpublished + moment)) - now

    def _emit_event(self, view: PoolView, status: SandboxWarmPoolStatus) -> None:
        event = event_of(view.pool.status, status)
        if event is not None:
            self._events.emit(POOLS, view.pool, event.kind, event.reason, event.message, event.action)
