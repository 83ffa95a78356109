"""When a claim's turn for a member comes, and whether a sandbox of its own would be ready sooner. Pure.

A cold start and the warming of a member are the same work on the same machines. Where these are busy, a cold start only takes the turn of
somebody who waits longer; where they are not, and the pool is too small, it is the sooner way.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known of a pool for whose members claims wait."""

    replicas: int  # that the pool wants
    warming: int  # members that nobody has reserved
    begun: int  # cold starts of claims that wait
    took: float | None  # seconds that a start takes of late; None: none has been seen
    rate: float  # starts that ended well a second, of late
    bearable: float  # starts at once
    prompt: bool = True  # the pool makes new members as soon as others are taken
    pressed: bool = False  # somebody has waited as long as the rate is measured over: it is all that there is

    @property
    def coming(self) -> int:
        """Members that may be counted on: those that warm and, where the pool has shown that it can, those that it will make
        as soon as others are taken."""
        return self.warming if self.took is None else max(self.warming, self.replicas)

    @property
    def under_way(self) -> int:
        """Starts that have begun, or would have, had anybody had the time."""
        return self.begun + (self.coming if self.prompt else self.warming)

    @property
    def pace(self) -> float:
        """Starts a second that may be counted on. What was measured may be less than what could be, if little was wanted."""
        if not self.took:
            return self.rate
        return max(self.rate, self.under_way / self.took) if self.prompt else self.rate


@dataclass(frozen=True, slots=True)
class Outlook:
    """How things stand for the claims that wait for members of one pool, and for one that would come now."""

    waiting: int = 0
    oldest: float = 0.0  # seconds that the first of them has waited
    begun: int = 0  # of them have begun to start cold
    rate: float = 0.0  # members and cold sandboxes that became ready a second, of late
    expected: float | None = 0.0  # seconds until one that came now would be served; None: nobody can say


def turn(situation: Situation, place: int) -> float | None:
    """Seconds until a member is there for the claim that has so many before it; None: nobody can say."""
    if situation.took is None or not situation.replicas:
        return None
    if place < situation.coming:
        return situation.took
    return (place + 1) / situation.pace if situation.pace else None


def expected(situation: Situation, place: int) -> float | None:
    """What a claim at this place is told: as `turn`, but by what was served where the pool has been at its limit for long, wherever that lies. A start
    that has to wait for its turn at the server looks short."""
    due = turn(situation, place)
    if due is None or not situation.pressed or not situation.rate:
        return due
    return max(due, (place + 1) / situation.rate)


def cold_is_sooner(situation: Situation, place: int) -> bool:
    """For a claim at this place that no member is coming for. A pool of none has none to wait for."""
    if not situation.replicas:
        return True
    if situation.under_way >= situation.bearable:
        return False
    due = turn(situation, place)
    return due is None or situation.took is None or situation.took < due


def served_in(situation: Situation, place: int) -> float | None:
    """Seconds until a claim that came now would be served, by a member or by a sandbox of its own; None: nobody can say."""
    return situation.took if cold_is_sooner(situation, place) else expected(situation, place)
