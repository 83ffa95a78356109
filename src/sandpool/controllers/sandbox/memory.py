"""What is remembered of each sandbox while its cache shows it. Losing it loses nothing: it saves writes and wake-ups.

Times are of the monotonic clock, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandpool.model.metadata import Uid
from sandpool.model.sandbox import SandboxStatus

RESPITE = 30.0
"""What happened longer ago than this, and not again since, counts as over."""
_LONGEST = 16.0


@dataclass(slots=True)
class Notes:
    untold: float | None = None  # since when a status difference waits for company
    told: SandboxStatus | None = None  # what we wrote last, are writing, or agreed with: news of it is no news
    disputed: float | None = None  # when somebody else last wrote another status, and how often that happened lately
    disputes: int = 0
    made: float | None = None  # when something was last made for it, and how often that was in vain lately
    losses: int = 0

    def waits_since(self, now: float) -> float:
        """Since when a difference waits: from now on, if none does yet."""
        if self.untold is None:
            self.untold = now
        return self.untold

    def dispute(self, now: float, pause: float) -> float:
        """Somebody else wrote another status. How long to let it stand: at first not at all, because a write that landed late is
        never repeated, then longer each time, because two who contradict each other at once would never rest."""
        self.disputes = self.disputes + 1 if _recent(self.disputed, now) else 0
        self.disputed = now
        return _delay(self.disputes, pause)

    def makes(self, now: float) -> None:
        """Something was made. What is made again soon was made in vain."""
        self.losses = self.losses + 1 if _recent(self.made, now) else 0
        self.made = now

    def not_before(self, pause: float) -> float | None:
        """When the next thing may be made; None: nothing has been made yet, or nothing that did not go by our own will."""
        return None if self.made is None else self.made + _delay(self.losses, pause)

    def unmade(self) -> None:
        """What was made goes because we want it to."""
        self.made, self.losses = None, 0


class Memory:
    """Notes by the sandbox's uid: one made anew under the same name is another."""

    def __init__(self) -> None:
        self._notes: dict[Uid, Notes] = {}

    def begin(self, sandbox: Uid) -> None:
        self._notes.setdefault(sandbox, Notes())

    def of(self, sandbox: Uid) -> Notes:
        """Of one that is gone already they are empty, and nobody keeps them."""
        return self._notes.get(sandbox) or Notes()

    def drop(self, sandbox: Uid) -> None:
        self._notes.pop(sandbox, None)

    def __len__(self) -> int:
        return len(self._notes)


def _recent(then: float | None, now: float) -> bool:
    return then is not None and now - then <= RESPITE


def _delay(times: int, pause: float) -> float:
    return min(_LONGEST, pause * 2.0 ** (times - 1)) if times else 0.0
