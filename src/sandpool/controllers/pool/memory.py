"""What is remembered of one pool between two passes. Memory only: a restart loses it, and nothing is wrong then."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sandpool.controllers.pool.pace import Hold, Pause, Tokens
from sandpool.controllers.pool.roster import Roster
from sandpool.model.metadata import Uid
from sandpool.model.pool import SandboxWarmPoolStatus

Judged = tuple[str, Uid, int]
"""The template by which staleness was judged: its name, uid and generation."""


@dataclass(slots=True)
class Memory:
    roster: Roster
    alive: bool = False  # the pool has been seen and is not gone
    judged: Judged | None = None
    unsettled: dict[str, None] = field(default_factory=dict)  # names of creates that may have happened
    names: list[str] = field(default_factory=list)  # names to use first: a late create of one meets its successor
    removing: dict[Uid, None] = field(default_factory=dict)  # deletes of ours that are under way
    losses: int = 0  # members that others took or deleted, ever
    in_vain: int = 0  # of these, the ones that others deleted before they were ever ready
    doubted: bool = False  # others deleted members: is the pool still there, and what we think that it is?
    pause: Pause | None = None
    hold: Hold | None = None
    tokens: Tokens | None = None
    careful: bool = False  # the last creates failed: the next ones start with one
    refused: tuple[Judged, str] | None = None  # what the server will not accept, as long as nothing changes
    refused_until: float = 0.0  # and until when it is taken at its word, by the monotonic clock
    mended: dict[Uid, datetime] = field(default_factory=dict)  # what got labels or owner back: left alone until then
    failed: str = ""  # why the last creates failed; empty once some succeed
    struck: str = ""  # the last member that was given up, and why
    told: SandboxWarmPoolStatus | None = None  # what the status says, unless somebody else has written it since
    untold: float | None = None  # since when a status difference waits, by the monotonic clock
    written: float | None = None  # when the status was last written

    def pardon(self, now: float) -> None:
        """A policy may allow by now what it refused."""
        if self.refused is not None and now >= self.refused_until:
            self.refused = None
