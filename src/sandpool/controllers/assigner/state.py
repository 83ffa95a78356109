"""The assigner's state, and what can be read off it without changing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sandpool.controllers.assigner.facts import Claimant, Counts, Member, Standing, standing
from sandpool.controllers.assigner.forecast import Outlook
from sandpool.controllers.assigner.pool_state import MemberState, PoolState
from sandpool.controllers.assigner.wait_queue import Place
from sandpool.model.metadata import Uid


@dataclass(slots=True)
class Request:
    """A claim in the queue or, with a member, one that holds a reservation."""

    pool: Uid
    place: Place
    member: Uid | None = None


class AssignerState:
    """Members, pools, requests and drained nodes, with read-only questions about them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._member_states: dict[Uid, MemberState] = {}
        self.pool_states: dict[Uid, PoolState] = {}
        self.requests: dict[Uid, Request] = {}
        self._on_node: dict[str, dict[Uid, None]] = {}
        self._draining: set[str] = set()
        self._awaited: dict[Uid, None] = {}  # pools that somebody waits for

    @property
    def empty(self) -> bool:
        """Whether nothing is known."""
        known = self._member_states, self.pool_states, self.requests, self._on_node, self._draining, self._awaited
        return not any(known)

    def holder(self, member: Uid) -> Claimant | None:
        member_state = self._member_states.get(member)
        return member_state.holder if member_state is not None else None

    def held_by(self, claim: Uid) -> Member | None:
        """The member reserved for the claim. A claim whose last transfer is unsettled looks at it before it asks again."""
        request = self.requests.get(claim)
        return (
            self._member_states[request.member].member if request is not None and request.member is not None else None
        )

    def offered(self, claim: Uid) -> bool:
        """Whether the member reserved for the claim may still be handed out: it may have changed since it was acquired."""
        request = self.requests.get(claim)
        if request is None or request.member is None:
            return False
        return self._judge(self._member_states[request.member]) in (Standing.READY, Standing.LAST_CHOICE)

    def reservations(self) -> Iterator[tuple[Claimant, Member]]:
        """All reservations, for the audit."""
        for request in self.requests.values():
            if request.member is not None:
                member_state = self._member_states[request.member]
                assert member_state.holder is not None
                yield member_state.holder, member_state.member

    def member(self, uid: Uid) -> Member | None:
        member_state = self._member_states.get(uid)
        return member_state.member if member_state is not None else None

    def members(self) -> Iterator[Member]:
        """All members, for the audit."""
        for member_state in self._member_states.values():
            yield member_state.member

    @property
    def pressed(self) -> bool:
        """Whether any claim waits for members that a pool makes."""
        return bool(self._awaited)

    def counts(self, pool: Uid) -> Counts:
        pool_state = self.pool_states.get(pool)
        return Counts() if pool_state is None else pool_state.counts()

    # Forecasts

    def outlook(self, pool: Uid) -> Outlook:
        """How many claims wait, for how long, and how long a claim that arrived now would."""
        pool_state = self.pool_states.get(pool)
        return Outlook() if pool_state is None else pool_state.outlook(self._clock())

    def turn(self, claim: Uid) -> tuple[int, float | None] | None:
        """How many claims are served before this one, and in how many seconds its turn is expected. None: it does not wait."""
        request = self.requests.get(claim)
        if request is None or request.member is not None:
            return None
        pool_state = self.pool_states[request.pool]
        return pool_state.queue.place(claim) or 0, pool_state.turn(claim, self._clock())

    def _judge(self, member_state: MemberState) -> Standing:
        if member_state.withdrawn:
            return Standing.WITHHELD
        member = member_state.member
        return standing(member, self.pool_states[member.pool].facts, member.node in self._draining)
