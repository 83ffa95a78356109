"""What is remembered of each sandbox while its cache shows it. Losing it loses nothing: it saves writes and wake-ups.

Times are of the monotonic clock, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sandpool.base.streak import Streak
from sandpool.model.metadata import Key, Uid
from sandpool.model.sandbox import SandboxStatus


@dataclass(slots=True)
class Notes:
    untold: float | None = None  # since when a status difference waits for company
    told: SandboxStatus | None = None  # what we wrote last, are writing, or agreed with: news of it is no news
    disputes: Streak = field(default_factory=Streak)  # statuses that somebody else wrote
    made: Streak = field(default_factory=Streak)  # what was made for it, unless we ended it ourselves since
    ownerless: float | None = None  # since when the claim that it belongs to is not there
    released: Uid | None = None  # that claim, once it is known to be gone
    releasing: bool = False  # we asked for its end because of that

    def waits_since(self, now: float) -> float:
        """Since when a difference waits: from now on, if none does yet."""
        if self.untold is None:
            self.untold = now
        return self.untold

    def dispute(self, now: float, pause: float) -> float:
        """Somebody else wrote another status. How long to let it stand: at first not at all, because a write that landed late is
        never repeated."""
        self.disputes.count(now)
        return self.disputes.delay(pause)

    def not_before(self, pause: float) -> float | None:
        """When the next thing may be made; None: nothing has been made yet, or nothing that did not go by our own will."""
        return None if self.made.at is None else self.made.at + self.made.delay(pause)


class Memory:
    """Notes by the sandbox's uid: one made anew under the same name is another."""

    def __init__(self) -> None:
        self._notes: dict[Uid, Notes] = {}
        self.released: dict[Uid, None] = {}  # sandboxes whose claim is gone, in the order in which it went
        self.remains: dict[Key, dict[Uid, None]] = {}  # released sandboxes that are gone, and whose pods are not

    def begin(self, sandbox: Uid) -> None:
        self._notes.setdefault(sandbox, Notes())

    def of(self, sandbox: Uid) -> Notes:
        """Of one that is gone already they are empty, and nobody keeps them."""
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
        """It is not, or no longer, one that was released and is still there."""
        if sandbox in self.released:
            del self.released[sandbox]

    def cleared(self, key: Key, sandbox: Uid) -> None:
        """Nothing is left of a released sandbox, or nothing that is ours to delete."""
        gone = self.remains.get(key)
        if gone is not None:
            gone.pop(sandbox, None)
            if not gone:
                del self.remains[key]

    def __len__(self) -> int:
        return len(self._notes)
