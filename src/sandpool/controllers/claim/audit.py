"""The slow comparison of what is remembered with what is cached. Every difference is a bug of ours; it is put right and counted.

One pass is one synchronous step, so it never sees half of a change.
"""

from __future__ import annotations

from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Claimant, Woken
from sandpool.controllers.assigner.feed import Feed
from sandpool.controllers.claim.memory import Memory
from sandpool.controllers.claim.observe import Observer
from sandpool.controllers.claim.view import bound_name
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics

log = logger(__name__)

MEMBER_UNKNOWN, MEMBER_OUTDATED, MEMBER_GONE = "member_unknown", "member_outdated", "member_gone"
RESERVATION = "reservation_without_claim"
NOTES = "notes_without_claim"
KINDS = (MEMBER_UNKNOWN, MEMBER_OUTDATED, MEMBER_GONE, RESERVATION, NOTES)


class Audit:
    def __init__(self, observer: Observer, assigner: Assigner, feed: Feed, memory: Memory, metrics: Metrics) -> None:
        self._observer = observer
        self._assigner = assigner
        self._feed = feed
        self._memory = memory
        self._repairs = metrics.repairs
        metrics.declare_repairs(KINDS)

    def run(self) -> Woken:
        """The claims that should ask again."""
        return (*self._members(), *self._reservations(), *self._notes())

    def _members(self) -> Woken:
        known = {member.uid: member for member in self._assigner.members()}
        woken: list[Claimant] = []
        for sandbox in self._observer.caches.sandboxes:
            should = self._feed.member(sandbox)
            if should is None:
                continue
            does = known.pop(should.uid, None)
            if does != should:
                self._count(MEMBER_UNKNOWN if does is None else MEMBER_OUTDATED, should.key)
                woken += self._assigner.put_member(should)
        for member in known.values():
            self._count(MEMBER_GONE, member.key)
            woken += self._assigner.drop_member(member.uid)
        return tuple(woken)

    def _reservations(self) -> Woken:
        woken: list[Claimant] = []
        for claimant, member in list(self._assigner.reservations()):
            claim = self._observer.caches.claims.get(claimant.key)
            notes = self._memory.find(claimant.uid)
            if notes is not None and notes.at_work:
                continue
            if claim is None or claim.metadata.uid != claimant.uid or bound_name(claim) == member.key.name:
                self._count(RESERVATION, claimant.key)
                woken += self._assigner.forget(claimant.uid)
        return tuple(woken)

    def _notes(self) -> Woken:
        living = {claim.metadata.uid for claim in self._observer.caches.claims}
        for uid in [uid for uid in self._memory if uid not in living]:
            notes = self._memory.find(uid)
            if notes is not None and not notes.at_work:
                self._count(NOTES, uid)
                self._memory.drop(uid)
        return ()

    def _count(self, kind: str, about: object) -> None:
        self._repairs.labels(kind).inc()
        log.error("memory repaired", what=kind, about=about)
