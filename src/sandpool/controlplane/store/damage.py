"""The report about a damaged store: what is missing, what is left, and how to continue. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandpool.controlplane.store.errors import DamagedStore
from sandpool.controlplane.store.record import Record
from sandpool.model.metadata import NO_REVISION, Revision

SHOWN = 20
"""How many findings an error message shows; the report saved with the damaged files has all of them."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One write that can no longer be read."""

    key: str  # empty: not known
    revision: Revision
    why: str
    instead: Revision = NO_REVISION  # the newest older state of the object that can be read
    superseded: bool = False  # a newer state of the object can be read: only history is lost

    def __str__(self) -> str:
        return f"{self.key or 'an unknown object'}: revision {self.revision}: {self.why}; {self._outcome()}"

    def _outcome(self) -> str:
        if self.superseded:
            return "a newer revision of it is sound, nothing is missing"
        if self.instead:
            return f"its state at revision {self.instead} is what is left"
        return "nothing is left of it"


@dataclass(frozen=True, slots=True)
class Missing:
    """A range of acknowledged revisions that were not found."""

    first: Revision
    last: Revision
    why: str

    def __str__(self) -> str:
        what = f"revision {self.last}" if self.first == self.last else f"revisions {self.first} to {self.last}"
        return f"{what} {'was' if self.first == self.last else 'were'} acknowledged and cannot be found: {self.why}"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is damaged, and what can still be read."""

    path: Path
    facts: tuple[str, ...] = ()  # about the files
    missing: tuple[Missing, ...] = ()
    losses: tuple[Loss, ...] = ()
    live: Mapping[str, Record] = field(default_factory=dict)  # the newest sound state of each object
    newest: Revision = NO_REVISION  # revisions up to this one must not be assigned again
    intact: bool = False  # every object can be read in its last acknowledged state

    def lines(self) -> list[str]:
        """The whole report, one finding per line. Lost objects come before superseded revisions."""
        losses = sorted(self.losses, key=lambda loss: (loss.superseded, loss.key, loss.revision))
        return [*self.facts, *map(str, self.missing), *map(str, losses)]

    def error(self) -> DamagedStore:
        return Damaged(self)


class Damaged(DamagedStore):
    """The store is damaged; carries the diagnosis."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(refusal(diagnosis))
        self.diagnosis = diagnosis


def refusal(diagnosis: Diagnosis) -> str:
    lines = diagnosis.lines()
    shown = lines if len(lines) <= SHOWN + 1 else [*lines[:SHOWN], f"and {len(lines) - SHOWN} more"]
    return "\n".join(
        [
            f"{diagnosis.path} is damaged. Nothing was changed. What was found:",
            *(f"  - {line}" for line in shown),
            _left(diagnosis),
            "Restore a backup with `sandpool restore FILE`. Or start with what is left: `sandpool up --accept-loss` keeps the damaged"
            " files in a directory beside it.",
        ]
    )


def _left(diagnosis: Diagnosis) -> str:
    count = len(diagnosis.live)
    objects = f"{count} object{'' if count == 1 else 's'}"
    if diagnosis.intact:
        return f"All {objects} can be read as they were last acknowledged."
    return f"{objects} can be read." if count else "No object can be read."
