"""Forecasts when a claim's turn for a member comes, and whether a cold start would be ready sooner. Pure.

A cold start and the warming of a member are the same work on the same machines. Where these are busy, a cold start only delays
another claim that has waited longer; where they are not, and the pool is too small, it is faster.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known of a pool that claims wait for."""

    replicas: int  # that the pool wants
    warming: int  # members that nobody has reserved
    begun: int  # cold starts of claims that wait
    took: float | None  # seconds that recent starts took; None: none has been observed
    rate: float  # successful starts per second, recently
    bearable: float  # concurrent starts that the cluster can take
    prompt: bool = True  # the pool makes new members as soon as others are taken
    pressed: bool = (
        False  # a claim has waited for the whole span that the rate is measured over, so the measured rate is the limit
    )

    @property
    def coming(self) -> int:
        """Members that may be counted on: those that warm and, where the pool has shown that it can, those that it will make
        as soon as others are taken."""
        return self.warming if self.took is None else max(self.warming, self.replicas)

    @property
    def under_way(self) -> int:
        """Starts that have begun, or would have begun if there were capacity."""
        return self.begun + (self.coming if self.prompt else self.warming)

    @property
    def pace(self) -> float:
        """Starts per second to expect. The measured rate may be lower than the possible one if little was asked for."""
        if not self.took:
            return self.rate
        return max(self.rate, self.under_way / self.took) if self.prompt else self.rate


@dataclass(frozen=True, slots=True)
class Outlook:
    """The queue of one pool, and what a claim that arrived now could expect."""

    waiting: int = 0
    oldest: float = 0.0  # seconds that the first of them has waited
    begun: int = 0  # of them have begun to start cold
    rate: float = 0.0  # members and cold sandboxes that became ready per second, recently
    expected: float | None = 0.0  # seconds until a claim that arrived now would be served; None: unknown


def turn(situation: Situation, place: int) -> float | None:
    """Seconds until a member is available for the claim with `place` claims before it; None: unknown."""
    if situation.took is None or not situation.replicas:
        return None
    if place < situation.coming:
        return situation.took
    return (place + 1) / situation.pace if situation.pace else None


def expected(situation: Situation, place: int) -> float | None:
    """The forecast for a claim at this place. As `turn`, but where the pool has long been at its limit it uses the measured rate: a start
    that waits for its turn at the server looks shorter than it is."""
    due = turn(situation, place)
    if due is None or not situation.pressed or not situation.rate:
        return due
    return max(due, (place + 1) / situation.rate)


def cold_is_sooner(situation: Situation, place: int) -> bool:
    """Whether a claim at this place, for which no member is coming, should start cold. A pool of zero members has none to wait for."""
    if not situation.replicas:
        return True
    if situation.under_way >= situation.bearable:
        return False
    due = turn(situation, place)
    return due is None or situation.took is None or situation.took < due


def served_in(situation: Situation, place: int) -> float | None:
    """Seconds until a claim that arrived now would be served, by a member or by a sandbox of its own; None: unknown."""
    return situation.took if cold_is_sooner(situation, place) else expected(situation, place)
