"""What is remembered of one pool between two passes. Memory only: a restart loses it, and nothing is wrong then."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandpool.controllers.pool.pace import Hold, Tokens
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
    hold: Hold | None = None
    tokens: Tokens | None = None
    careful: bool = False  # the last creates failed: the next ones start with one
    refused: tuple[Judged, str] | None = None  # what the server will not accept, whatever often it is asked
    failed: str = ""  # why the last creates failed; empty once some succeed
    struck: str = ""  # the last member that was given up, and why
    told: SandboxWarmPoolStatus | None = None  # what the status says, unless somebody else has written it since
    untold: float | None = None  # since when a status difference waits, by the monotonic clock
    written: float | None = None  # when the status was last written
