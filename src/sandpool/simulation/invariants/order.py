"""The order of service: who is served before whom, that refill is not starved by claims, and that every wait ends.

Judged as each leader decides: a claim is not served while an older one of its pool, which the leader had observed before and could serve, waits; no
claim waits for a member while one is ready; what a pool makes does not rest while claims wait for it; and a sandbox that a claim started for
itself, where a member might come first, is shown once it is ready.

Judged once faults are off (`Waits`): a waiting claim is served, or gets a reason, within a bounded number of writes. The final check asks whether a
claim has what it can have; this asks how it got there, because a claim that is overtaken again and again may be served in the end by luck. Writes
are counted rather than seconds: a slow node is not unfair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sandpool.controllers.assigner.facts import Claimant, Member, Woken
from sandpool.kube.priority import Priority
from sandpool.loop.queue import Item
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.expiry import claim_end, expired
from sandpool.model.labels import CONTROLLER_FIRST_OBSERVED_AT
from sandpool.model.metadata import Key, Uid
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.simulation.invariants.ledger import moment
from sandpool.simulation.steps import Step

if TYPE_CHECKING:
    from sandpool.simulation.leader import Leader

RESTED = 1.0
"""Seconds that refill work may wait for a worker while claims wait for members."""


class Order:
    """Judges the decisions of one leader: `violated` is called with every violation."""

    def __init__(self, leader: Leader, now: Callable[[], float], violated: Callable[[str], object]) -> None:
        self._leader = leader
        self._now = now
        self._violated = violated
        self._heard: dict[Uid, float] = {}
        self._noted: dict[Uid, str] = {}  # the first-observed annotation of each claim when it was first cached
        self._last: dict[Uid, SandboxClaim] = {}  # as each was last known, also once it is gone
        self._pressed = 0.0
        made = leader.controllers
        made.caches.claims.subscribe(self._claim)
        reserve, serve, on_pressed = made.assigner._reserve, made.assigner._serve, made.assigner.on_pressed

        def reserving(claimant: Claimant, member_state: Any, *place: Any) -> Member:
            self._reserved(claimant, member_state.member)
            return reserve(claimant, member_state, *place)

        def serving(pool: Uid) -> Woken:
            woken = serve(pool)
            self._served(pool)
            return woken

        def pressed() -> None:
            self._pressed = now()
            on_pressed()

        made.assigner._reserve = reserving  # type: ignore[method-assign,assignment]
        made.assigner._serve = serving  # type: ignore[method-assign]
        made.assigner.on_pressed = pressed
        for loop in (made.pool.loop, made.sandbox.loop):
            self._watch(loop)

    def _claim(self, old: SandboxClaim | None, new: SandboxClaim | None) -> None:
        if new is None:
            return
        if old is None:
            self._heard[new.metadata.uid] = self._now()
            self._noted[new.metadata.uid] = new.metadata.annotations.get(CONTROLLER_FIRST_OBSERVED_AT, "")
        self._last[new.metadata.uid] = new

    def _watch(self, loop: Any) -> None:
        take = loop.queue.take_nowait

        def taking() -> Item[Key] | None:
            item: Item[Key] | None = take()
            if item is not None and item.priority is Priority.BACKGROUND and self._rested(item.waited):
                self._violated(
                    f"share: {loop.name} {item.key} waited {item.waited:.1f} s for a worker of {self._leader.name} while claims "
                    "waited for members"
                )
            return item

        loop.queue.take_nowait = taking

    def _rested(self, waited: float) -> bool:
        pressed = self._leader.controllers.assigner.pressed
        return pressed and min(waited, self._now() - self._pressed) > RESTED

    def _served(self, pool: Uid) -> None:
        """No claim waits for a member while one is ready."""
        pool_state = self._leader.controllers.assigner.pool_states.get(pool)
        if pool_state is not None and len(pool_state.queue) and pool_state.best() is not None:
            self._violated(
                f"wait: {self._leader.name} has {pool_state.counts().ready} ready members of a pool that {len(pool_state.queue)} claims wait for"
            )

    def _reserved(self, claimant: Claimant, member: Member) -> None:
        made = self._leader.controllers
        pool = next((one for one in made.caches.pools if one.metadata.uid == member.pool), None)
        mine = self._last.get(claimant.uid)
        if pool is None:
            return
        since = self._heard.get(claimant.uid, self._now())
        for other in made.caches.claims:
            key = other.pool_key
            if key != pool.metadata.key or other.metadata.uid == claimant.uid:
                continue
            if self._before(other, since, mine) and self._could_be_served(other, pool):
                self._violated(
                    f"order: {self._leader.name} gives claim {claimant.key} sandbox {member.key} of pool {key} while claim "
                    f"{other.metadata.key}, which is older, waits"
                )

    def _before(self, other: SandboxClaim, since: float, mine: SandboxClaim | None) -> bool:
        """Of two claims of the same second, the annotation of an earlier leader decides; without it, the order in which they were observed."""
        heard, made = self._heard[other.metadata.uid], other.metadata.creation_timestamp
        if heard > since or made is None:
            return False
        created = None if mine is None else mine.metadata.creation_timestamp
        if mine is None or created is None or made != created:
            return created is None or made < created
        theirs, ours = self._noted[other.metadata.uid], self._noted.get(mine.metadata.uid)
        if theirs and ours:
            return theirs < ours
        return heard < since and not mine.metadata.annotations.get(CONTROLLER_FIRST_OBSERVED_AT)

    def _could_be_served(self, claim: SandboxClaim, pool: SandboxWarmPool) -> bool:
        """Whether the claim could have been served. A claim of a pool without members that has begun a cold start need not wait."""
        made, meta = self._leader.controllers, claim.metadata
        if claim.status.sandbox is not None or meta.leaving or claim.spec.customised:
            return False
        if expired(claim_end(claim), moment(self._now())) or made.assigner.held_by(meta.uid) is not None:
            return False
        notes = made.claim.memory.find(meta.uid)
        if notes is None or notes.committing or notes.transfer is not None or notes.gone_until is not None:
            return False
        at_work = (
            notes.at_work or meta.key in made.claim.loop.queue._processing
        )  # perhaps for an earlier claim of this name
        request = made.assigner.requests.get(meta.uid)
        in_line = request is not None and request.member is None and request.pool == pool.metadata.uid
        if meta.key in made.claim.loop._troubled or (at_work and not in_line):
            return False  # refused, slow or failed calls: it is reconciled again later
        owned = [box for box in made.caches.sandboxes if (box.metadata.controller or meta).uid == meta.uid]
        return all(pool.spec.replicas > 0 and box.metadata.name == meta.name and not _decided(box) for box in owned)


def _decided(box: Sandbox) -> bool:
    """Whether it will be bound to the claim in any case."""
    settled = any(is_true(box.status.conditions, one) for one in (Type.READY, Type.FINISHED))
    return settled or bool(box.spec.suspended)


EACH, BESIDES = 30, 200
"""Writes allowed for each claim that waits when faults go off, and for everything else that is left to do: twice what is needed at most."""


class Waits:
    """Starts when faults go off, with the claims of that moment."""

    def __init__(self, claims: Iterable[SandboxClaim]) -> None:
        self._waiting: dict[Uid, Key] = {
            claim.metadata.uid: claim.metadata.key for claim in claims if not _ended(claim)
        }
        self._most = BESIDES + EACH * len(self._waiting)
        self._steps = 0

    def step(self, step: Step) -> Iterator[str]:
        self._steps += 1
        claim = step.object
        if not isinstance(claim, SandboxClaim):
            return
        uid = claim.metadata.uid
        if uid not in self._waiting or (step.new is not None and not _ended(claim)):
            return
        del self._waiting[uid]
        if step.new is not None and not claim.metadata.leaving and self._steps > self._most:
            yield (
                f"wait: claim {claim.metadata.key} is served {self._steps} writes after the last fault; "
                f"{self._most} are enough for all that waited"
            )


def _ended(claim: SandboxClaim) -> bool:
    """Whether the claim has a sandbox, or needs none any more."""
    return claim.status.sandbox is not None or claim.metadata.leaving
