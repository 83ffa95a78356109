"""Writes that were refused (429) and rest before they are sent again: when one of them goes before its rest is over. Time is an argument.

All that is younger would overtake a write that rests. So where a younger one of its lane would be sent, it is sent instead, once another write has
been served since it was refused. The server gets no request more than it would have got otherwise, and whoever was not sent is next. If it is
refused again, many more must have been served before it tries another time: a write that is refused for a reason of its own costs the others little.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

Place = tuple[bool, int]
"""Where a request stands in its lane: whether it begins something, and when it came."""

MOST_PROOF: Final = 1024


def proof(early: int) -> int:
    """How many writes must have been served since a write was refused which has gone early so many times."""
    return MOST_PROOF if early >= MOST_PROOF.bit_length() else 1 << early


@dataclass(slots=True, eq=False)
class Rest:
    place: Place
    proven: int  # how many must have been served in all
    granted: asyncio.Future[None]  # done: it goes early, and has its place


class Rests:
    """The writes of one lane that rest."""

    __slots__ = ("_resting",)

    def __init__(self) -> None:
        self._resting: list[Rest] = []

    def __len__(self) -> int:
        return len(self._resting)

    def add(self, rest: Rest) -> None:
        self._resting.append(rest)

    def remove(self, rest: Rest) -> None:
        """Its rest is over. One that went early is not here any more."""
        if rest in self._resting:
            self._resting.remove(rest)

    def take(self, before: Place, served: int) -> Rest | None:
        """Who goes instead of a write of this place, if anybody; it rests no more. `served`: writes in all."""
        able = (rest for rest in self._resting if rest.place < before and served >= rest.proven)
        first = min(able, key=lambda rest: rest.place, default=None)
        if first is not None:
            self._resting.remove(first)
        return first
