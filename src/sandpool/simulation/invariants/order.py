"""Who is served before whom, and that what makes members is not kept waiting by what takes them: judged as each leader decides.

A claim is not served while an older one of its pool, which the leader had heard of before and could serve, waits, and nobody waits for a member while one is
ready. What a pool makes does not rest while claims wait for it. A sandbox that a claim started for itself, where a member might come first, is shown once it is ready.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sandpool.controllers.assigner.facts import Claimant, Member, Woken
from sandpool.loop.queue import Item, Priority
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.expiry import claim_end, expired
from sandpool.model.labels import CONTROLLER_FIRST_OBSERVED_AT
from sandpool.model.metadata import Key, Uid
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.simulation.invariants.ledger import moment

if TYPE_CHECKING:
    from sandpool.simulation.leader import Leader

RESTED = 1.0
"""Seconds that what makes members may wait for a worker while claims wait for members."""


class Order:
    """Looks over the shoulder of one leader: `violated` hears of what must not be."""

    def __init__(self, leader: Leader, now: Callable[[], float], violated: Callable[[str], object]) -> None:
        self._leader = leader
        self._now = now
        self._violated = violated
        self._heard: dict[Uid, float] = {}
        self._noted: dict[Uid, str] = {}  # what each said of its first being seen when it was heard of
        self._last: dict[Uid, SandboxClaim] = {}  # as each was last known, also once it is gone
        self._pressed = 0.0
        made = leader.controllers
        made.caches.claims.subscribe(self._claim)
        reserve, serve, hungry = made.assigner._reserve, made.assigner._serve, made.assigner.hungry

        def reserving(claimant: Claimant, seat: Any, *place: Any) -> Member:
            self._reserved(claimant, seat.member)
            return reserve(claimant, seat, *place)

        def serving(pool: Uid) -> Woken:
            woken = serve(pool)
            self._served(pool)
            return woken

        def pressed() -> None:
            self._pressed = now()
            hungry()

        made.assigner._reserve = reserving  # type: ignore[method-assign,assignment]
        made.assigner._serve = serving  # type: ignore[method-assign]
        made.assigner.hungry = pressed
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
            if item is not None and item.priority is Priority.SECOND and self._rested(item.waited):
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
        """Who waits for members waits for none that is there."""
        house = self._leader.controllers.assigner._houses.get(pool)
        if house is not None and len(house.line) and house.best() is not None:
            self._violated(
                f"wait: {self._leader.name} has {house.counts().ready} ready members of a pool that {len(house.line)} claims wait for"
            )

    def _reserved(self, claimant: Claimant, member: Member) -> None:
        made = self._leader.controllers
        pool = next((one for one in made.caches.pools if one.metadata.uid == member.pool), None)
        mine = self._last.get(claimant.uid)
        if pool is None:
            return
        since = self._heard.get(claimant.uid, self._now())
        for other in made.caches.claims:
            key = Key(other.metadata.namespace, other.spec.warm_pool_ref.name)
            if key != pool.metadata.key or other.metadata.uid == claimant.uid:
                continue
            if self._before(other, since, mine) and self._could_be_served(other, pool):
                self._violated(
                    f"order: {self._leader.name} gives claim {claimant.key} sandbox {member.key} of pool {key} while claim "
                    f"{other.metadata.key}, which is older, waits"
                )

    def _before(self, other: SandboxClaim, since: float, mine: SandboxClaim | None) -> bool:
        """Of two that were made in the same second, what an earlier leader noted decides; without that, who was heard of first."""
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
        """Of a pool that wants no members, who has begun to start cold need not wait for any."""
        made, meta = self._leader.controllers, claim.metadata
        if claim.status.sandbox is not None or meta.leaving or claim.spec.customised:
            return False
        if expired(claim_end(claim), moment(self._now())) or made.assigner.held_by(meta.uid) is not None:
            return False
        notes = made.claim._memory.find(meta.uid)
        if notes is None or notes.landing or notes.transfer is not None or notes.gone_until is not None:
            return False
        at_work = (
            notes.at_work or meta.key in made.claim.loop.queue._processing
        )  # maybe for one that had this name before
        request = made.assigner._requests.get(meta.uid)
        in_line = request is not None and request.member is None and request.pool == pool.metadata.uid
        if meta.key in made.claim.loop._troubled or (at_work and not in_line):
            return False  # a server that refuses, or a call that is slow or failed: it comes back later
        owned = [box for box in made.caches.sandboxes if (box.metadata.controller or meta).uid == meta.uid]
        return all(pool.spec.replicas > 0 and box.metadata.name == meta.name and not _decided(box) for box in owned)


def _decided(box: Sandbox) -> bool:
    """Whether it will be the claim's, whatever else comes."""
    said = any(is_true(box.status.conditions, one) for one in (Type.READY, Type.FINISHED))
    return said or bool(box.spec.suspended)
