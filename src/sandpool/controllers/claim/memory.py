"""What the claim controller remembers of each claim while this process runs, and how old each claim is. It only saves reads, writes and reconciles; a restart loses nothing.

The age decides whose turn it is. Claims compare by creation time, in whole seconds; then by when a controller first observed them, if one has written that down (on
one machine in the commit that creates the claim); then by revision; then by uid, so that every process finds the same order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sandpool.base.backoff import doubled
from sandpool.controllers.assigner.facts import Age, Claimant
from sandpool.model.claim import SandboxClaim, SandboxClaimStatus
from sandpool.model.labels import CONTROLLER_FIRST_OBSERVED_AT
from sandpool.model.metadata import Revision, Uid
from sandpool.model.sandbox import Sandbox
from sandpool.model.times import micro

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def age_of(claim: SandboxClaim, seen: datetime, *, created: datetime | None = None) -> Age:
    """`seen`: when this process first observed it. `created`: counts instead of what the claim says."""
    meta = claim.metadata
    observed = meta.annotations.get(CONTROLLER_FIRST_OBSERVED_AT) or micro(seen)
    return created or meta.creation_timestamp or _LONG_AGO, observed, meta.revision, meta.uid


def noted(age: Age, claim: SandboxClaim) -> Age:
    """The age of a claim that was observed before, with the time that another process may have annotated since. The revision stays the first
    observed one, which is closer to the claim's creation."""
    observed = claim.metadata.annotations.get(CONTROLLER_FIRST_OBSERVED_AT)
    return (age[0], observed, *age[2:]) if observed else age


def claimant(claim: SandboxClaim, age: Age) -> Claimant:
    meta = claim.metadata
    return Claimant(meta.uid, meta.key, age)


RESPITE = timedelta(seconds=30)
"""For this long a 404 of the server overrides the cache, which still shows the claim."""


class InlineRevisions(NamedTuple):
    """What the commit of a claim that was bound inline has written."""

    created: Revision  # the claim as it was sent
    sandbox: Revision
    bound: Revision  # the claim with its status


@dataclass(slots=True)
class Notes:
    """What is remembered of one claim."""

    first_seen: datetime
    age: Age = ()  # decides the order of service
    waits_since: datetime | None = None  # since when it has waited for a sandbox
    first_ready: datetime | None = None  # when this process first published it as Ready
    published: SandboxClaimStatus | None = (
        None  # the status that we wrote last, are writing, or agreed with: an event that shows it needs no reconcile
    )
    taking: str = ""  # the sandbox that is being taken or created: its event needs no reconcile either
    transfer: Sandbox | None = None  # a transfer whose outcome is unknown, with the sandbox as it was before
    creation: bool = False  # a create whose outcome is unknown
    naming: bool = False  # likewise a write of the annotations that precede Ready
    disputed: datetime | None = (
        None  # when another writer last changed the status, and how often that happened recently
    )
    disputes: int = 0
    gone_until: datetime | None = None  # the server answered 404; the DELETED event is expected by then
    inline: InlineRevisions | None = None  # if it was bound inline: events of these states need no reconcile
    committing: bool = False  # that commit is not durable yet: no other process can know of the claim
    reported_at: float | None = None  # when its wait was last reported
    report_at: float | None = None  # its time slot for the next report
    reporting: asyncio.Task[object] | None = None  # a report under way: cancelled when its turn comes
    tidy_at: float | None = None  # when its surplus sandbox may be deleted
    at_work: bool = False  # a reconcile is under way, and will clean up when it ends

    def called(self) -> None:
        """The claim is woken: cancels a report of its wait."""
        if self.reporting is not None:
            self.reporting.cancel()


class Memory:
    """The notes of all claims, by uid."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._notes: dict[Uid, Notes] = {}
        self._youngest: datetime | None = None  # creation time of the youngest claim observed so far

    def of(self, claim: SandboxClaim) -> Notes:
        notes = self._notes.get(claim.metadata.uid)
        if notes is None:
            now = self._now()
            notes = self._notes[claim.metadata.uid] = Notes(now, age_of(claim, now))
        return notes

    def arrived(self, claim: SandboxClaim) -> Notes:
        """The notes of a claim that was just created. It counts as the youngest, even if the clock was set back."""
        notes, created = self.of(claim), claim.metadata.creation_timestamp
        if created is not None:
            if self._youngest is not None and created < self._youngest:
                notes.age = age_of(claim, notes.first_seen, created=self._youngest)
            else:
                self._youngest = created
        return notes

    def put(self, claim: SandboxClaim, notes: Notes) -> None:
        """Records notes of a claim before its first event."""
        self._notes[claim.metadata.uid] = notes

    def find(self, claim: Uid) -> Notes | None:
        return self._notes.get(claim)

    def dispute(self, notes: Notes, pause: float) -> float:
        """Another writer changed the status. Returns the seconds to wait before correcting it: longer each time, because two writers that
        correct each other at once would never stop."""
        now = self._now()
        if notes.disputed is None or now - notes.disputed > RESPITE:
            notes.disputes = 0
        notes.disputed, notes.disputes = now, notes.disputes + 1
        return doubled(pause, notes.disputes - 1, RESPITE.total_seconds() / 2)

    def gone(self, claim: SandboxClaim) -> None:
        """The server answered 404 although the cache still shows the claim: nothing is done for it meanwhile. Otherwise a sandbox would be created for
        it and garbage-collected again and again."""
        self.of(claim).gone_until = self._now() + RESPITE

    def drop(self, claim: Uid) -> None:
        self._notes.pop(claim, None)

    def __iter__(self) -> Iterator[Uid]:
        return iter(self._notes)

    def __len__(self) -> int:
        return len(self._notes)
