"""All that the assigner knows about one pool: its members, where each is counted, and who waits."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandpool.controllers.assigner.facts import Claimant, Counts, Member, Pool, Standing
from sandpool.controllers.assigner.line import Line
from sandpool.controllers.assigner.shelf import Shelf
from sandpool.model.metadata import Uid


@dataclass(slots=True)
class Seat:
    """A member and where it is counted. One that is held is counted nowhere, which is what Withheld means as a place."""

    member: Member
    place: Standing = Standing.WITHHELD
    holder: Claimant | None = None
    withdrawn: bool = False


@dataclass(slots=True)
class House:
    """`facts` is None until the pool is seen, and again when it is gone: members and claims may come before and stay longer."""

    facts: Pool | None = None
    members: dict[Uid, None] = field(default_factory=dict)
    ready: Shelf = field(default_factory=Shelf)
    last_choice: Shelf = field(default_factory=Shelf)
    warming: int = 0
    reserved: int = 0
    line: Line = field(default_factory=Line)

    @property
    def empty(self) -> bool:
        return self.facts is None and not self.members and not len(self.line)

    def best(self) -> Uid | None:
        """The member to hand out next."""
        return self.ready.first() or self.last_choice.first()

    def lay(self, seat: Seat, place: Standing) -> None:
        """Counts the member there. One that is there already keeps its turn."""
        if place is seat.place:
            return
        self.lift(seat)
        seat.place = place
        if place is Standing.WARMING:
            self.warming += 1
        elif (shelf := self._shelf(place)) is not None:
            shelf.add(seat.member.uid, seat.member.node)

    def lift(self, seat: Seat) -> None:
        """Counts the member nowhere."""
        if seat.place is Standing.WARMING:
            self.warming -= 1
        elif (shelf := self._shelf(seat.place)) is not None:
            shelf.remove(seat.member.uid, seat.member.node)
        seat.place = Standing.WITHHELD

    def counts(self) -> Counts:
        return Counts(len(self.ready) + len(self.last_choice), self.warming, self.reserved, len(self.line))

    def _shelf(self, place: Standing) -> Shelf | None:
        if place is Standing.READY:
            return self.ready
        return self.last_choice if place is Standing.LAST_CHOICE else None
