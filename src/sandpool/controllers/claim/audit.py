"""Compares from time to time what the claim controller remembers with what the caches hold. A difference is a bug: it is repaired and counted.

Each comparison is one synchronous step, so it never sees half of a change.
"""

from __future__ import annotations

from collections.abc import Iterator

from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Claimant, Member, Woken
from sandpool.controllers.assigner.feed import Feed
from sandpool.controllers.claim.memory import Memory
from sandpool.controllers.claim.observe import Observer
from sandpool.controllers.claim.view import bound_name
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics

log = logger(__name__)

MEMBER_UNKNOWN, MEMBER_OUTDATED, MEMBER_GONE = "member_unknown", "member_outdated", "member_gone"
RESERVATION = "reservation_without_claim"
NOTES = "notes_without_claim"
KINDS = (MEMBER_UNKNOWN, MEMBER_OUTDATED, MEMBER_GONE, RESERVATION, NOTES)


class Audit:
    """Compares and repairs; `steps` yields the claims to wake after each comparison."""

    def __init__(self, observer: Observer, assigner: Assigner, feed: Feed, memory: Memory, metrics: Metrics) -> None:
        self._observer = observer
        self._assigner = assigner
        self._feed = feed
        self._memory = memory
        self._repairs = metrics.repairs
        metrics.declare_repairs(KINDS)

    def run(self) -> Woken:
        """Runs all comparisons at once; returns the claims that should ask again."""
        return tuple(claimant for woken in self.steps() for claimant in woken)

    def steps(self) -> Iterator[Woken]:
        """One comparison after the other, so that other work may run in between. Objects that changed meanwhile are skipped: their events have
        been handled."""
        for sandbox in tuple(self._observer.caches.sandboxes):
            yield self._member(sandbox)
        for member in tuple(self._assigner.members()):
            yield self._former(member)
        for claimant, member in tuple(self._assigner.reservations()):
            yield self._reservation(claimant, member)
        yield self._notes()

    def _member(self, sandbox: Sandbox) -> Woken:
        if self._observer.caches.sandboxes.get(sandbox.metadata.key) is not sandbox:
            return ()
        should = self._feed.member(sandbox)
        does = self._assigner.member(sandbox.metadata.uid)
        if should is None or does == should:
            return ()
        self._count(MEMBER_UNKNOWN if does is None else MEMBER_OUTDATED, should.key)
        return self._assigner.put_member(should)

    def _former(self, member: Member) -> Woken:
        if self._assigner.member(member.uid) is not member:
            return ()
        sandbox = self._observer.caches.sandboxes.get(member.key)
        same = sandbox is not None and sandbox.metadata.uid == member.uid
        if sandbox is not None and same and self._feed.member(sandbox) is not None:
            return ()
        self._count(MEMBER_GONE, member.key)
        return self._assigner.drop_member(member.uid)

    def _reservation(self, claimant: Claimant, member: Member) -> Woken:
        held, notes = self._assigner.held_by(claimant.uid), self._memory.find(claimant.uid)
        if held is None or held.uid != member.uid or (notes is not None and (notes.at_work or notes.committing)):
            return ()
        claim = self._observer.caches.claims.get(claimant.key)
        if claim is not None and claim.metadata.uid == claimant.uid and bound_name(claim) != member.key.name:
            return ()
        self._count(RESERVATION, claimant.key)
        return self._assigner.forget(claimant.uid)

    def _notes(self) -> Woken:
        living = {claim.metadata.uid for claim in self._observer.caches.claims}
        for uid in [uid for uid in self._memory if uid not in living]:
            notes = self._memory.find(uid)
            if notes is not None and not (notes.at_work or notes.committing):
                self._count(NOTES, uid)
                self._memory.drop(uid)
        return ()

    def _count(self, kind: str, about: object) -> None:
        self._repairs.labels(kind).inc()
        log.error("memory repaired", what=kind, about=about)
