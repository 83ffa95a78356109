"""Carries out what was decided for a claim. A method returns when to reconcile again, or None to decide the next step at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from sandpool.base.clock import Clock
from sandpool.base.errors import SandpoolError
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Cause, Cold, Member, Take, Wait, Why, Woken, cause_of
from sandpool.controllers.claim import settle
from sandpool.controllers.claim.expire import Expiry
from sandpool.controllers.claim.handover import Handover
from sandpool.controllers.claim.keep import Keeper
from sandpool.controllers.claim.memory import Memory, Notes, age_of, claimant
from sandpool.controllers.claim.observe import Observer, policy_name
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.plan import cold_step, races
from sandpool.controllers.claim.publish import Publisher, TimeSlots, waiting_text
from sandpool.controllers.claim.status import bound_event, held_up, misleads, refusal_event, same, unbound
from sandpool.controllers.claim.steps import (
    Ask,
    Bind,
    CleanUp,
    Create,
    Hold,
    Keep,
    Leave,
    Look,
    Mark,
    Race,
    Refuse,
    Remove,
    Start,
    Step,
    describe,
)
from sandpool.controllers.claim.view import ClaimView
from sandpool.kube.errors import ApiError, Conflict, NotFound, TooManyRequests
from sandpool.kube.priority import Priority, with_priority
from sandpool.loop.errors import Terminal
from sandpool.loop.events import Events, Kind
from sandpool.loop.outcome import Done
from sandpool.loop.writes import Writes
from sandpool.model.claim import SandboxClaim, SandboxClaimStatus
from sandpool.model.conditions import find, is_true
from sandpool.model.container_defaults import ContainerDefaults
from sandpool.model.expiry import claim_end
from sandpool.model.kinds import CLAIMS, NETWORK_POLICIES, SANDBOXES
from sandpool.model.metadata import Uid
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.log import logger
from sandpool.telemetry.reconcile_history import note

log = logger(__name__)

SHORT = 1e-3
"""Seconds. A shorter wait counts as over: datetimes are rounded to microseconds, and a timer may fire slightly early."""

NAME_IT = (
    "annotate the claim with its sandbox, without which it is not Ready "
    "(a controller with --disable-claim-observability-annotations does without)"
)


class Applier:
    """Carries out one step of a claim; see steps.py."""

    def __init__(
        self,
        writes: Writes,
        observer: Observer,
        assigner: Assigner,
        memory: Memory,
        handover: Handover,
        publisher: Publisher,
        clock: Clock,
        events: Events,
        options: Options,
        defaults: ContainerDefaults,
        wake: Callable[[Woken], None],
        started_cold: Callable[[SandboxClaim, Cause], object],
    ) -> None:
        self._writes = writes
        self._observer = observer
        self._assigner = assigner
        self._memory = memory
        self._handover = handover
        self._publisher = publisher
        self._clock = clock
        self._events = events
        self._options = options
        self._defaults = defaults
        self._wake = wake
        self._started_cold = started_cold
        self._report_slots = TimeSlots(options.reports_per_second)
        self._keeper = Keeper(writes, observer, memory, handover, publisher, clock, options)
        self._expiry = Expiry(writes, publisher, clock, events)

    async def do(self, step: Step, view: ClaimView) -> Done | None:
        match step:
            case Ask(pool):
                return await self._ask(view, pool)
            case Race(pool, sandbox):
                return await self._ask(view, pool, sandbox)
            case Start():
                return await self._start(view)
            case Refuse():
                return await self._refuse(step, view)
            case Look(name):
                await self._look(name, view)
                return None
            case Bind(sandbox):
                with with_priority(Priority.URGENT):
                    return await self._bind(view.claim, sandbox)
        self._forget(view.claim)  # from here on it needs nothing from a pool
        match step:
            case Keep(sandbox):
                return await self._keeper.keep(view, sandbox)
            case Mark():
                return await self._expiry.mark(view)
            case Remove(foreground):
                return await self._expiry.remove(view.claim, foreground=foreground)
            case CleanUp(sandboxes):
                return await self._expiry.clean_up(view, sandboxes)
            case Leave():
                return Done()

    async def clear_legacy(self, claim: SandboxClaim) -> None:
        """Deletes the NetworkPolicy that an earlier version left for the claim. A failure neither delays nor fails the claim."""
        legacy = self._observer.legacy(claim)
        if legacy is None:
            return
        name, namespace = policy_name(claim.metadata.name), claim.metadata.namespace
        try:
            await self._writes.delete(NETWORK_POLICIES, name, namespace, preconditions=legacy)
        except SandpoolError as error:
            log.info("old policy not deleted", policy=name, error=f"{type(error).__name__}: {error}")

    # Finding a sandbox

    async def _ask(self, view: ClaimView, of: SandboxWarmPool, starting: Sandbox | None = None) -> Done | None:
        """`starting`: the claim's own sandbox, which is not needed if a member is ready first."""
        claim, notes, now = view.claim, self._memory.of(view.claim), self._clock.now()
        notes.waits_since = since = min(notes.waits_since or now, now)  # also if the clock was set back
        deadline = since + timedelta(seconds=self._options.patience)
        pool = of.metadata.uid
        notes.age = notes.age or age_of(claim, notes.first_seen)  # not known yet if the claim was bound inline
        decision = self._assigner.acquire(claimant(claim, notes.age), pool, now, deadline, begun=starting is not None)
        self._wake(decision.woken)
        match decision:
            case Take(member):
                with with_priority(Priority.URGENT):  # also if this reconcile was only to report the wait
                    return await self._take(view, member, starting)
            case Wait(until):
                place, expected = self._assigner.turn(claim.metadata.uid) or (None, None)
                text = waiting_text(of.metadata.name, place, expected, _trouble_of(of))
                note(text)
                return await self._rest(view, text, until)
            case Cold(why) if starting is None:
                note(f"start cold: {why.value}")
                with with_priority(Priority.URGENT):
                    return await self._start(view, pool, why)
            case Cold(why):
                if why is Why.NO_POOL:
                    with with_priority(Priority.URGENT):
                        return await self._bind(claim, starting)
                return await self._rest(view, *_progress(starting, of))

    async def _take(self, view: ClaimView, member: Member, starting: Sandbox | None) -> Done | None:
        claim = view.claim
        try:
            sandbox = await self._handover.take(claim, member)
        except (
            Terminal
        ):  # this member cannot have what the claim asks for; a sandbox made from the current template may
            return await (self._start(view) if starting is None else self._bind(claim, starting))
        except ApiError as error:
            if not isinstance(error, Conflict | TooManyRequests) and self._memory.of(claim).transfer is None:
                self._forget(claim)  # the server refuses: meanwhile another claim may have the member
            await self._report_failure(claim, f"take sandbox {member.key.name}", error)
            raise
        return None if sandbox is None else await self._bind(claim, sandbox)

    async def _bind(self, claim: SandboxClaim, sandbox: Sandbox) -> Done | None:
        try:
            await self._handover.name(claim, sandbox.metadata.name)
        except ApiError as error:
            await self._report_failure(claim, NAME_IT, error)
            raise
        match await self._handover.bind(claim, sandbox):
            case settle.ClaimGone():
                note("the claim is gone")
                self._memory.gone(claim)
                return Done()  # what it owned is collected
            case settle.Surplus(kept):
                note(f"sandbox {sandbox.metadata.name} is surplus: the claim has {kept}")
            case settle.Bound(bound):
                notes = self._memory.of(claim)
                if is_true(bound.status.conditions, Type.READY):
                    notes.first_ready = notes.first_ready or self._clock.now()
                    self._wake(self._assigner.started(claim.metadata.uid))
                else:
                    self._forget(claim)  # at once: other claims wait for the member that may be reserved for it
                self._events.emit(CLAIMS, bound, *bound_event(claim, sandbox))
        return None

    async def _start(self, view: ClaimView, pool: Uid | None = None, why: Why | None = None) -> Done | None:
        """Starts a sandbox for the claim. `pool`: the claim also waits for a member of it, and stands by for one if it cannot start. `why`: the
        assigner's reason, if it was asked."""
        claim, notes = view.claim, self._memory.of(view.claim)
        notes.waits_since = notes.waits_since or self._clock.now()
        if pool is None:
            self._forget(claim)
        view = self._observer.for_start(view)
        step = cold_step(view, self._options.label_domains, self._defaults)
        note(describe(step))
        match step:
            case Refuse(reason):
                if pool is not None and reason != Reason.INVALID_METADATA:  # a member could not have it either
                    self._stand_by(claim, pool)
                    return await self._refuse(step, view, stays=True)
                return await self._refuse(step, view)
            case Hold(message):
                if pool is not None:
                    self._stand_by(claim, pool)
                return await self._rest(view, message, None)
            case Create(sandbox):
                racing = view.pool is not None and races(view, view.pool)
                return await self._create(claim, sandbox, pool, cause_of(claim, why), races=racing)

    async def _create(
        self, claim: SandboxClaim, sandbox: Sandbox, pool: Uid | None, cause: Cause, *, races: bool
    ) -> Done | None:
        try:
            if await self._handover.create(claim, sandbox, surely_its_own=not races) is not None:
                self._started_cold(claim, cause)
        except ApiError as error:
            await self._report_failure(claim, f"create sandbox {claim.metadata.name}", error)
            if pool is not None and not self._memory.of(claim).creation:
                self._stand_by(claim, pool)
            raise
        return None  # the next step is decided on what the cache shows now

    async def _look(self, name: str, view: ClaimView) -> None:
        """Reads the sandbox from the server. The answer enters the cache, and the next step is decided on it."""
        try:
            await self._writes.get(SANDBOXES, name, view.claim.metadata.namespace)
        except NotFound:
            note(f"sandbox {name} is gone")
            # Perhaps because the claim is gone as well: then it needs no other sandbox. That answer enters the cache, too.
            await self._publisher.found(view.claim)

    # Waiting without a sandbox

    async def _refuse(self, step: Refuse, view: ClaimView, *, stays: bool = False) -> Done:
        """Publishes why the claim cannot be served. `stays`: it keeps its place in the queue of its pool."""
        claim, now = view.claim, self._clock.now()
        if not stays:
            self._forget(claim)
        self._memory.of(claim).waits_since = None
        status = unbound(claim, step.reason, step.message, now)
        if not same(claim.status, status):
            published = await self._publisher.publish(claim, status)
            if published is not None:
                self._events.emit(CLAIMS, claim, *refusal_event(step))
        return Done(again_at=claim_end(claim))

    async def _rest(
        self, view: ClaimView, message: str, until: datetime | None, reason: str = Reason.SANDBOX_MISSING
    ) -> Done:
        """The claim waits and will be woken. Its wait is reported after a while, or at once if the status is misleading."""
        claim, now = view.claim, self._clock.now()
        notes = self._memory.of(claim)
        pause = 0.0 if misleads(claim) else self._pause(notes, now, in_line=until is not None)
        if pause < SHORT:
            if not await self._reported(claim, unbound(claim, reason, message, now)):
                return Done()  # it was woken meanwhile and is reconciled again at once
            notes.reported_at, notes.report_at, pause = self._clock.monotonic(), None, self._options.report_every
            if until is None:  # its report does not change with time
                return Done(again_at=claim_end(claim), background=True)
        report_at = now + timedelta(seconds=pause)
        return Done(again_at=_earliest(until, claim_end(claim), report_at), background=True)

    async def _reported(self, claim: SandboxClaim, status: SandboxClaimStatus) -> bool:
        """Whether the wait was reported before it ended. Under overload this write may wait long behind writes that serve claims, and
        a claim that is woken meanwhile must not be overtaken because of it: so waking it cancels the report."""
        notes = self._memory.of(claim)
        notes.reporting = reporting = asyncio.create_task(self._publisher.publish(claim, status))
        try:
            await reporting
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                reporting.cancel()
                raise
            return False
        finally:
            notes.reporting = None
        return True

    def _pause(self, notes: Notes, now: datetime, *, in_line: bool) -> float:
        """Seconds until the wait may be reported again; the claim keeps its time slot until it is used. `in_line`: its place in the queue, and so the
        report, keeps changing."""
        moment, options = self._clock.monotonic(), self._options
        early = ((notes.waits_since or now) - now).total_seconds() + options.report_after
        if notes.reported_at is not None and in_line:
            early = max(early, notes.reported_at + options.report_every - moment)
        if early >= SHORT:
            return early
        if notes.report_at is None:
            notes.report_at = self._report_slots.take(moment)
        return notes.report_at - moment

    async def _report_failure(self, claim: SandboxClaim, what: str, error: ApiError) -> None:
        """Reports a call that the server refuses. Errors that a retry settles are not reported."""
        if isinstance(error, Conflict | TooManyRequests | NotFound):
            return
        status = unbound(claim, Reason.RECONCILER_ERROR, f"Error seen: could not {what}: {error}", self._clock.now())
        try:
            if await self._publisher.publish(claim, status) is not None and not same(claim.status, status):
                self._events.emit(CLAIMS, claim, Kind.WARNING, Reason.RECONCILER_ERROR, f"Could not {what}: {error}")
        except SandpoolError as another:
            log.debug("failure not reported", error=f"{type(another).__name__}: {another}")

    def _stand_by(self, claim: SandboxClaim, pool: Uid) -> None:
        self._wake(self._assigner.stand_by(claimant(claim, self._memory.of(claim).age), pool))

    def _forget(self, claim: SandboxClaim) -> None:
        self._wake(self._assigner.forget(claim.metadata.uid))


def _progress(starting: Sandbox, pool: SandboxWarmPool) -> tuple[str, None, str]:
    """The Ready message of a claim whose own sandbox starts: that of the sandbox or, if its pod does not start, the reason."""
    ready, name = find(starting.status.conditions, Type.READY), starting.metadata.name
    if ready is None:
        text = f"Waiting for sandbox {name}, or one of pool {pool.metadata.name}, to become ready"
        return text, None, Reason.SANDBOX_MISSING
    why = held_up(starting)
    return ready.message if why is None else why[1], None, ready.reason


def _trouble_of(pool: SandboxWarmPool) -> str:
    """Why members of the pool do not start, from its Healthy condition; empty if nothing is wrong."""
    healthy = find(pool.status.conditions, Type.HEALTHY)
    return "" if healthy is None or healthy.true else healthy.message


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)
