"""What the assigner knows, and what can be read off it without changing anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sandpool.controllers.assigner.facts import Claimant, Counts, Member, Standing, standing
from sandpool.controllers.assigner.forecast import Outlook
from sandpool.controllers.assigner.house import House, Seat
from sandpool.controllers.assigner.line import Place
from sandpool.model.metadata import Uid


@dataclass(slots=True)
class Request:
    """A claim that stands in line or, with a member, holds a reservation."""

    pool: Uid
    place: Place
    member: Uid | None = None


class Books:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seats: dict[Uid, Seat] = {}
        self._houses: dict[Uid, House] = {}
        self._requests: dict[Uid, Request] = {}
        self._on_node: dict[str, dict[Uid, None]] = {}
        self._draining: set[str] = set()
        self._hungry: dict[Uid, None] = {}  # pools that somebody waits for

    @property
    def empty(self) -> bool:
        """Whether nothing is known."""
        known = self._seats, self._houses, self._requests, self._on_node, self._draining, self._hungry
        return not any(known)

    def holder(self, member: Uid) -> Claimant | None:
        seat = self._seats.get(member)
        return seat.holder if seat is not None else None

    def held_by(self, claim: Uid) -> Member | None:
        """What is reserved for the claim. One whose last transfer was left open looks at it before it asks again."""
        request = self._requests.get(claim)
        return self._seats[request.member].member if request is not None and request.member is not None else None

    def offered(self, claim: Uid) -> bool:
        """Whether what is reserved for the claim may still be handed out: the world may have changed since it was acquired."""
        request = self._requests.get(claim)
        if request is None or request.member is None:
            return False
        return self._judge(self._seats[request.member]) in (Standing.READY, Standing.LAST_CHOICE)

    def reservations(self) -> Iterator[tuple[Claimant, Member]]:
        """For the audit, which may be slow."""
        for request in self._requests.values():
            if request.member is not None:
                seat = self._seats[request.member]
                assert seat.holder is not None
                yield seat.holder, seat.member

    def member(self, uid: Uid) -> Member | None:
        seat = self._seats.get(uid)
        return seat.member if seat is not None else None

    def members(self) -> Iterator[Member]:
        """For the audit, too."""
        for seat in self._seats.values():
            yield seat.member

    @property
    def pressed(self) -> bool:
        """Whether anybody waits for a member that a pool makes."""
        return bool(self._hungry)

    def counts(self, pool: Uid) -> Counts:
        house = self._houses.get(pool)
        return Counts() if house is None else house.counts()

    # What is to be expected

    def outlook(self, pool: Uid) -> Outlook:
        """How many wait, for how long, and how long one that came now would."""
        house = self._houses.get(pool)
        return Outlook() if house is None else house.outlook(self._clock())

    def expected_wait(self, pool: Uid) -> float | None:
        """Seconds that a claim that came now would wait for a member; None: nobody can say."""
        house = self._houses.get(pool)
        return None if house is None else house.outlook(self._clock()).expected

    def turn(self, claim: Uid) -> tuple[int, float | None] | None:
        """How many are served before the claim, and in how many seconds its turn is expected. None: it does not wait."""
        request = self._requests.get(claim)
        if request is None or request.member is not None:
            return None
        house = self._houses[request.pool]
        return house.line.place(claim) or 0, house.turn(claim, self._clock())

    def _judge(self, seat: Seat) -> Standing:
        if seat.withdrawn:
            return Standing.WITHHELD
        member = seat.member
        return standing(member, self._houses[member.pool].facts, member.node in self._draining)
