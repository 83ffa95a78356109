"""What the sandbox controller remembers of each cached sandbox. It only saves writes and reconciles; a restart loses nothing.

Times are seconds of the monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sandpool.base.backoff import Streak
from sandpool.model.metadata import Key, Uid
from sandpool.model.sandbox import SandboxStatus


@dataclass(slots=True)
class Notes:
    """What is remembered of one sandbox."""

    unpublished: float | None = None  # since when a status change waits to share a write
    published: SandboxStatus | None = (
        None  # the status that we wrote last, are writing, or agreed with: an event that shows it needs no reconcile
    )
    disputes: Streak = field(default_factory=Streak)  # status writes of others
    made: Streak = field(default_factory=Streak)  # creates for it, unless we deleted the object ourselves since
    ownerless: float | None = None  # since when its claim has not been cached
    released: Uid | None = None  # the uid of that claim, once it is known to be gone
    releasing: bool = False  # we sent its delete because of that

    def waits_since(self, now: float) -> float:
        """Since when a status change waits; starts now if none did."""
        if self.unpublished is None:
            self.unpublished = now
        return self.unpublished

    def dispute(self, now: float, pause: float) -> float:
        """Another writer changed the status. Returns the seconds to wait before correcting it: none at first, because a write that took effect late
        is not repeated."""
        self.disputes.count(now)
        return self.disputes.delay(pause)

    def not_before(self, pause: float) -> float | None:
        """When something may be created for it again; None: nothing was created yet, or we deleted it ourselves."""
        return None if self.made.at is None else self.made.at + self.made.delay(pause)


class Memory:
    """Notes by the sandbox's uid: a sandbox re-created under the same name is another one."""

    def __init__(self) -> None:
        self._notes: dict[Uid, Notes] = {}
        self.released: dict[Uid, None] = {}  # sandboxes whose claim is gone, in the order in which it went
        self.remains: dict[Key, dict[Uid, None]] = {}  # released sandboxes that are gone, and whose pods are not

    def begin(self, sandbox: Uid) -> None:
        self._notes.setdefault(sandbox, Notes())

    def of(self, sandbox: Uid) -> Notes:
        """The notes of a sandbox. Those of one that is gone are empty and not kept."""
        return self._notes.get(sandbox) or Notes()

    def drop(self, sandbox: Uid) -> None:
        self._notes.pop(sandbox, None)
        self.kept(sandbox)

    def release(self, sandbox: Uid, claim: Uid, now: float) -> None:
        """Its claim is gone."""
        notes = self.of(sandbox)
        notes.released, notes.ownerless = claim, now
        self.released[sandbox] = None

    def kept(self, sandbox: Uid) -> None:
        """The sandbox is not, or no longer, a released one that still exists."""
        if sandbox in self.released:
            del self.released[sandbox]

    def cleared(self, key: Key, sandbox: Uid) -> None:
        """Nothing is left to delete of a released sandbox."""
        gone = self.remains.get(key)
        if gone is not None:
            gone.pop(sandbox, None)
            if not gone:
                del self.remains[key]

    def __len__(self) -> int:
        return len(self._notes)
