"""All that the assigner knows about one pool: its members, where each is counted, and who waits."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandpool.controllers.assigner.facts import Claimant, Counts, Member, Pool, Standing, Why
from sandpool.controllers.assigner.forecast import Outlook, Situation, cold_is_sooner, expected, served_in
from sandpool.controllers.assigner.line import Line, State
from sandpool.controllers.assigner.shelf import Shelf
from sandpool.controllers.assigner.tempo import SPAN, Began, Tempo
from sandpool.model.metadata import Uid


@dataclass(slots=True)
class Seat:
    """A member and where it is counted. One that is held is counted nowhere, which is what Withheld means as a place."""

    member: Member
    place: Standing = Standing.WITHHELD
    holder: Claimant | None = None
    withdrawn: bool = False
    began: Began | None = None  # if it was seen before it was ready


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
    tempo: Tempo = field(default_factory=Tempo)
    prompt: bool = True  # whether members are made as soon as others are taken

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

    # What is to be expected

    @property
    def hungry(self) -> bool:
        """Whether somebody waits for what the pool makes."""
        return bool(len(self.line)) and self.wanted > 0

    @property
    def wanted(self) -> int:
        """Members that the pool makes if it has none: none where it cannot."""
        facts = self.facts
        return 0 if facts is None or facts.leaving or not facts.template_known else facts.replicas

    def situation(self, now: float) -> Situation:
        tempo, since = self.tempo, self.line.since()
        begun, rate, pressed = self.line.begun(now), tempo.rate(now), since is not None and now - since >= SPAN
        return Situation(self.wanted, self.warming, begun, tempo.took, rate, tempo.bearable, self.prompt, pressed)

    def outlook(self, now: float) -> Outlook:
        situation, waiting, since = self.situation(now), len(self.line), self.line.since()
        wait = 0.0 if self.best() is not None else served_in(situation, waiting)
        oldest = 0.0 if since is None else now - since
        return Outlook(waiting, oldest, situation.begun, situation.rate, wait)

    def turn(self, claim: Uid, now: float) -> float | None:
        place = self.line.place(claim)
        return None if place is None else expected(self.situation(now), place)

    def covered(self, claim: Uid, now: float) -> bool:
        """Whether a member is coming for the claim, which is in line, as for one that only waits."""
        return self.line.before(claim) < self._spoken_for(now)

    def _spoken_for(self, now: float) -> int:
        """How many of those that only wait have a member coming. Who stands by, or began long ago, takes members, too."""
        line = self.line
        coming = self.warming if self.tempo.took is None else max(self.warming, self.wanted)
        return max(0, coming - (len(line) - line.idle - line.begun(now)))

    def begin(self, now: float) -> Claimant | None:
        """The oldest claim that no member is coming for, if a sandbox of its own is the sooner way: it begins one."""
        if self._refilling:
            return None
        line, found = self.line, self.line.waits(self._spoken_for(now))
        if found is None or not cold_is_sooner(self.situation(now), line.place(found.uid) or 0):
            return None
        line.put(found.uid, State.BEGUN, self.tempo.begin(now))
        return found

    def begin_late(self, now: float) -> list[Claimant]:
        """Nothing has become ready for long: as many as is bearable try a sandbox of their own, the oldest first, whatever may be coming for them."""
        line, bearable, found = self.line, self.tempo.bearable, list[Claimant]()
        while line.begun(now) < bearable and (oldest := line.waits(0)) is not None:
            line.put(oldest.uid, State.BEGUN, self.tempo.begin(now))
            found.append(oldest)
        return found

    @property
    def _refilling(self) -> bool:
        """Whether the pool, which has shown that it can, has not even begun all members that it wants. Then whoever has to make them is the limit, and a
        cold start would take the turn of a member that somebody older waits for."""
        return self.prompt and self.tempo.took is not None and len(self.members) - self.reserved < self.wanted

    def why_cold(self, claim: Uid, now: float) -> Why:
        """Why a claim that is in line begins a sandbox of its own."""
        if not self.wanted:
            return Why.NO_MEMBERS
        return Why.NONE_WARMING if self.turn(claim, now) is None else Why.SOONER

    def _shelf(self, place: Standing) -> Shelf | None:
        if place is Standing.READY:
            return self.ready
        return self.last_choice if place is Standing.LAST_CHOICE else None
