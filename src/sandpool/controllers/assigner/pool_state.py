"""All that the assigner knows about one pool: its members, the index of ready ones by node, and the claims that wait."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from sandpool.controllers.assigner.facts import Claimant, Counts, Member, Pool, Standing, Why
from sandpool.controllers.assigner.forecast import Outlook, Situation, cold_is_sooner, expected, served_in
from sandpool.controllers.assigner.start_rate import SPAN, Began, StartRate
from sandpool.controllers.assigner.wait_queue import State, WaitQueue
from sandpool.model.metadata import Uid

NOWHERE = ""

Ordered = OrderedDict[Uid, None]


class ReadyIndex:
    """Ready members by node. The next one comes from the node that has most left, oldest first; each operation is O(1).

    Nodes are grouped by how many members they have here. One step moves a node one group up or down, so the largest group
    is known without a search. Members without a node are used last.
    An OrderedDict finds its first key at once; a plain dict would walk over everything that was removed from its front.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Ordered] = {}  # never an empty one
        self._levels: dict[int, OrderedDict[str, None]] = {}  # named nodes by the number of their members
        self._highest = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, uid: Uid, node: str) -> None:
        members = self._nodes.get(node)
        if members is None:
            members = self._nodes[node] = OrderedDict()
        members[uid] = None
        self._size += 1
        self._move(node, len(members) - 1, len(members))

    def remove(self, uid: Uid, node: str) -> None:
        members = self._nodes[node]
        del members[uid]
        if not members:
            del self._nodes[node]
        self._size -= 1
        self._move(node, len(members) + 1, len(members))

    def first(self) -> Uid | None:
        """The member to use next; it stays."""
        if not self._size:
            return None
        node = next(iter(self._levels[self._highest])) if self._highest else NOWHERE
        return next(iter(self._nodes[node]))

    def _move(self, node: str, old: int, new: int) -> None:
        if node == NOWHERE:
            return
        if old:
            level = self._levels[old]
            del level[node]
            if not level:
                del self._levels[old]
        if new:
            self._levels.setdefault(new, OrderedDict())[node] = None
        # The node itself is one step away from where it was, so a highest level that is now empty has it just below.
        if new > self._highest or (old == self._highest and old not in self._levels):
            self._highest = new


@dataclass(slots=True)
class MemberState:
    """A member and where it is counted. A reserved member is counted nowhere: its place is WITHHELD."""

    member: Member
    place: Standing = Standing.WITHHELD
    holder: Claimant | None = None
    withdrawn: bool = False
    began: Began | None = None  # if it was seen before it was ready


@dataclass(slots=True)
class PoolState:
    """The assigner's state of one pool. `facts` is None until the pool is observed, and again when it is gone: members and claims may be known
    before it and after it."""

    facts: Pool | None = None
    members: dict[Uid, None] = field(default_factory=dict)
    ready: ReadyIndex = field(default_factory=ReadyIndex)
    last_choice: ReadyIndex = field(default_factory=ReadyIndex)
    warming: int = 0
    reserved: int = 0
    queue: WaitQueue = field(default_factory=WaitQueue)
    start_rate: StartRate = field(default_factory=StartRate)
    prompt: bool = True  # whether members are made as soon as others are taken

    @property
    def empty(self) -> bool:
        return self.facts is None and not self.members and not len(self.queue)

    def best(self) -> Uid | None:
        """The member to hand out next."""
        return self.ready.first() or self.last_choice.first()

    def count_as(self, member_state: MemberState, place: Standing) -> None:
        """Counts the member under this standing. One that is counted there already keeps its turn."""
        if place is member_state.place:
            return
        self.uncount(member_state)
        member_state.place = place
        if place is Standing.WARMING:
            self.warming += 1
        elif (ready_index := self._ready_index(place)) is not None:
            ready_index.add(member_state.member.uid, member_state.member.node)

    def uncount(self, member_state: MemberState) -> None:
        """Stops counting the member."""
        if member_state.place is Standing.WARMING:
            self.warming -= 1
        elif (ready_index := self._ready_index(member_state.place)) is not None:
            ready_index.remove(member_state.member.uid, member_state.member.node)
        member_state.place = Standing.WITHHELD

    def counts(self) -> Counts:
        return Counts(len(self.ready) + len(self.last_choice), self.warming, self.reserved, len(self.queue))

    # Forecasts

    @property
    def awaited(self) -> bool:
        """Whether claims wait for what the pool makes."""
        return bool(len(self.queue)) and self.wanted > 0

    @property
    def wanted(self) -> int:
        """How many members the pool would make; 0 if it cannot make any."""
        facts = self.facts
        return 0 if facts is None or facts.leaving or not facts.template_known else facts.replicas

    def situation(self, now: float) -> Situation:
        start_rate, since = self.start_rate, self.queue.since()
        begun, rate, pressed = self.queue.begun(now), start_rate.rate(now), since is not None and now - since >= SPAN
        return Situation(
            self.wanted, self.warming, begun, start_rate.took, rate, start_rate.bearable, self.prompt, pressed
        )

    def outlook(self, now: float) -> Outlook:
        situation, waiting, since = self.situation(now), len(self.queue), self.queue.since()
        wait = 0.0 if self.best() is not None else served_in(situation, waiting)
        oldest = 0.0 if since is None else now - since
        return Outlook(waiting, oldest, situation.begun, situation.rate, wait)

    def turn(self, claim: Uid, now: float) -> float | None:
        place = self.queue.place(claim)
        return None if place is None else expected(self.situation(now), place)

    def covered(self, claim: Uid, now: float) -> bool:
        """Whether a member is coming for the claim, if it only waits in the queue."""
        return self.queue.before(claim) < self._spoken_for(now)

    def _spoken_for(self, now: float) -> int:
        """How many claims that only wait have a member coming. Claims that stand by, or began a cold start long ago, take members too."""
        queue = self.queue
        coming = self.warming if self.start_rate.took is None else max(self.warming, self.wanted)
        return max(0, coming - (len(queue) - queue.idle - queue.begun(now)))

    def begin(self, now: float) -> Claimant | None:
        """The oldest claim that no member is coming for, if a cold start would be ready sooner; it is marked as begun."""
        if self._refilling:
            return None
        queue, found = self.queue, self.queue.waits(self._spoken_for(now))
        if found is None or not cold_is_sooner(self.situation(now), queue.place(found.uid) or 0):
            return None
        queue.put(found.uid, State.BEGUN, self.start_rate.begin(now))
        return found

    def begin_late(self, now: float) -> list[Claimant]:
        """Nothing has become ready for a while: the oldest claims start cold, as many as the cluster can take, whatever may be coming for them."""
        queue, bearable, found = self.queue, self.start_rate.bearable, list[Claimant]()
        while queue.begun(now) < bearable and (oldest := queue.waits(0)) is not None:
            queue.put(oldest.uid, State.BEGUN, self.start_rate.begin(now))
            found.append(oldest)
        return found

    @property
    def _refilling(self) -> bool:
        """Whether a pool that has started members before has not yet begun all that it wants. Then the controllers are the limit, and a
        cold start would delay a member that an older claim waits for."""
        return self.prompt and self.start_rate.took is not None and len(self.members) - self.reserved < self.wanted

    def why_cold(self, claim: Uid, now: float) -> Why:
        """Why a claim that is in line begins a sandbox of its own."""
        if not self.wanted:
            return Why.NO_MEMBERS
        return Why.NONE_WARMING if self.turn(claim, now) is None else Why.SOONER

    def _ready_index(self, place: Standing) -> ReadyIndex | None:
        if place is Standing.READY:
            return self.ready
        return self.last_choice if place is Standing.LAST_CHOICE else None
