"""The claims that wait for a member of one pool, oldest first, in whatever order they came or asked.

Each claim waits, or has begun a cold start, or stands by because it can do neither. All of them keep their place. Finding a
place takes a binary search; an insert moves memory in one piece.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from enum import Enum
from typing import NamedTuple

from sandpool.controllers.assigner.facts import Age, Claimant
from sandpool.controllers.assigner.start_rate import Began
from sandpool.model.metadata import Uid

LONG = 30.0
"""Seconds after which an unfinished cold start is no longer expected to end soon."""

Place = tuple[Age, int]
"""The age of the claim and a unique number: of two claims of the same age, the one that came first goes first."""


class State(Enum):
    """What a claim in the queue does meanwhile."""

    WAITS = "waits"
    BEGUN = "begun"
    STANDS_BY = "stands by"


class _Entry(NamedTuple):
    claimant: Claimant
    since: float


class WaitQueue:
    """The claims of one pool, sorted by age."""

    def __init__(self) -> None:
        self._all: list[Place] = []
        self._idle: list[Place] = []  # those that wait
        self._entries: dict[Place, _Entry] = {}
        self._places: dict[Uid, Place] = {}
        self._states: dict[Uid, State] = {}
        self._begun: OrderedDict[Uid, Began] = OrderedDict()  # recent cold starts

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, claim: object) -> bool:
        return claim in self._places

    @property
    def idle(self) -> int:
        """How many claims only wait."""
        return len(self._idle)

    def state(self, claim: Uid) -> State:
        return self._states[claim]

    def place(self, claim: Uid) -> int | None:
        """How many claims are before it."""
        place = self._places.get(claim)
        return None if place is None else bisect_left(self._all, place)

    def before(self, claim: Uid) -> int:
        """How many claims that only wait are before it."""
        return bisect_left(self._idle, self._places[claim])

    def since(self) -> float | None:
        """When the oldest claim joined."""
        return self._entries[self._all[0]].since if self._all else None

    def begun(self, now: float) -> int:
        """Cold starts under way that may be expected to end."""
        while self._begun and next(iter(self._begun.values())).at < now - LONG:
            self._begun.popitem(last=False)
        return len(self._begun)

    def began(self, claim: Uid) -> Began | None:
        """When the claim began its cold start."""
        return self._begun.get(claim)

    def join(self, claimant: Claimant, place: Place, now: float) -> None:
        self._entries[place] = _Entry(claimant, now)
        self._places[claimant.uid] = place
        self._states[claimant.uid] = State.WAITS
        insort(self._all, place)
        insort(self._idle, place)

    def put(self, claim: Uid, state: State, now: Began) -> None:
        """The claim is in this state from now on. `now`: a start that begins now."""
        old, place = self._states[claim], self._places[claim]
        if old is state:
            return
        self._states[claim] = state
        if old is State.WAITS:
            del self._idle[bisect_left(self._idle, place)]
        elif state is State.WAITS:
            insort(self._idle, place)
        self._begun.pop(claim, None)
        if state is State.BEGUN:
            self._begun[claim] = now

    def leave(self, claim: Uid) -> None:
        place = self._places.pop(claim, None)
        if place is None:
            return
        del self._entries[place], self._all[bisect_left(self._all, place)]
        if self._states.pop(claim) is State.WAITS:
            del self._idle[bisect_left(self._idle, place)]
        self._begun.pop(claim, None)

    def first(self) -> Claimant | None:
        return self._entries[self._all[0]].claimant if self._all else None

    def waits(self, number: int) -> Claimant | None:
        """The claim that only waits and has `number` such claims before it."""
        return self._entries[self._idle[number]].claimant if number < len(self._idle) else None

    def place_of(self, claim: Uid) -> Place:
        return self._places[claim]
