"""What is remembered of each claim while this process runs. Losing it loses nothing: it saves reads, writes and wake-ups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sandpool.controllers.assigner.facts import Age
from sandpool.controllers.claim.age import age_of
from sandpool.model.claim import SandboxClaim, SandboxClaimStatus
from sandpool.model.metadata import Revision, Uid
from sandpool.model.sandbox import Sandbox

RESPITE = timedelta(seconds=30)
"""For so long the server's word that a claim is gone counts more than the cache."""


class Granted(NamedTuple):
    """Revisions of what was written when a claim was served outright."""

    created: Revision  # the claim as it was sent
    taken: Revision  # its sandbox
    bound: Revision  # the claim that shows it


@dataclass(slots=True)
class Notes:
    first_seen: datetime
    age: Age = ()  # which decides whose turn it is
    waits_since: datetime | None = None  # since when it is looking for a sandbox
    first_ready: datetime | None = None  # when we published that it is ready, having been first to do so
    told: SandboxClaimStatus | None = None  # what we wrote last, are writing, or agreed with: news of it is no news
    taking: str = ""  # the sandbox that is being taken or created: to get it is no news either
    transfer: Sandbox | None = None  # a transfer whose end is not known, with the sandbox as it was before
    creation: bool = False  # a creation whose end is not known
    naming: bool = False  # the same of the annotations that a claim has before it is Ready
    disputed: datetime | None = None  # when somebody else last wrote another status, and how often that happened lately
    disputes: int = 0
    gone_until: datetime | None = None  # the server says that the claim is no more; the watch will say so by then
    granted: Granted | None = None  # if it was served outright: these states are no news
    landing: bool = False  # that is on its way to the disk: nobody else can know of the claim yet
    told_at: float | None = None  # when it was last told what it waits for
    tell_at: float | None = None  # when that may be told next: a turn that it has
    telling: asyncio.Task[object] | None = None  # that is being told: given up when its turn comes
    tidy_at: float | None = None  # when what it started in vain may be removed
    at_work: bool = False  # a reconcile is under way, and will clear up itself

    def called(self) -> None:
        """There is something to be done for the claim: that it waits need not be told any more."""
        if self.telling is not None:
            self.telling.cancel()


class Memory:
    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._notes: dict[Uid, Notes] = {}
        self._youngest: datetime | None = None  # when the claim was made that was heard of last

    def of(self, claim: SandboxClaim) -> Notes:
        notes = self._notes.get(claim.metadata.uid)
        if notes is None:
            now = self._now()
            notes = self._notes[claim.metadata.uid] = Notes(now, age_of(claim, now))
        return notes

    def arrived(self, claim: SandboxClaim) -> Notes:
        """A claim that was made just now. It is younger than all others, though a clock may have been set back."""
        notes, created = self.of(claim), claim.metadata.creation_timestamp
        if created is not None:
            if self._youngest is not None and created < self._youngest:
                notes.age = age_of(claim, notes.first_seen, created=self._youngest)
            else:
                self._youngest = created
        return notes

    def put(self, claim: SandboxClaim, notes: Notes) -> None:
        """What is known of a claim before anybody has heard of it."""
        self._notes[claim.metadata.uid] = notes

    def find(self, claim: Uid) -> Notes | None:
        return self._notes.get(claim)

    def dispute(self, notes: Notes, pause: float) -> float:
        """Somebody else says something else of the claim. How long to let it stand before it is put right: longer each time,
        because two who contradict each other at once would never rest."""
        now = self._now()
        if notes.disputed is None or now - notes.disputed > RESPITE:
            notes.disputes = 0
        notes.disputed, notes.disputes = now, notes.disputes + 1
        return min(pause * 2.0 ** (notes.disputes - 1), RESPITE.total_seconds() / 2)

    def gone(self, claim: SandboxClaim) -> None:
        """The server does not know the claim any more, though the cache still shows it: nothing is done for it meanwhile, or
        whatever is made for it and collected at once would be made again and again."""
        self.of(claim).gone_until = self._now() + RESPITE

    def drop(self, claim: Uid) -> None:
        self._notes.pop(claim, None)

    def __iter__(self) -> Iterator[Uid]:
        return iter(self._notes)

    def __len__(self) -> int:
        return len(self._notes)
