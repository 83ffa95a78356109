"""The faults of a run: what can go wrong, how likely each is, and how often it happened.

Each kind of fault draws from its own random stream, and each seed has its own rates.

A seed leaves some kinds out and lets others strike often: faults that always come together would hide each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum

from sandpool.simulation.seeded_loop import RandomStreams
from sandpool.simulation.steps import NOBODY, Author, author


class Fault(StrEnum):
    """The kinds of faults."""

    # Calls that are not made
    CONFLICT = "409 conflict"
    TOO_MANY = "429 too many requests"
    INTERNAL = "500 before the write"
    UNAVAILABLE = "503 unavailable"
    TIMEOUT = "504 before the write"
    REFUSED = "connection refused"
    # Calls that are made, and end badly
    LOST = "answer lost after the write"
    TIMEOUT_AFTER = "504 after the write"
    INTERNAL_AFTER = "500 after the write"
    SLOW = "slow call"
    LATE = "write that lands after its sender died"
    # Watches
    DELAYED = "watch delayed"
    DROPPED = "watch dropped"
    DUPLICATED = "watch event duplicated"
    REORDERED = "events reordered across kinds"
    GONE = "410 gone"
    # The controllers
    CRASH = "crash"
    CRASH_IN_CALL = "crash in a call"
    STOP = "orderly restart"
    TWO_LEADERS = "two leaders"
    # The cluster
    POD_STUCK = "pod never ready"
    POD_FAILED = "pod failed"
    POD_LOST = "pod deleted"
    NODE_DRAIN = "node drained"


RATES: dict[Fault, float] = {
    Fault.CONFLICT: 0.02,
    Fault.TOO_MANY: 0.01,
    Fault.INTERNAL: 0.02,
    Fault.UNAVAILABLE: 0.01,
    Fault.TIMEOUT: 0.01,
    Fault.REFUSED: 0.01,
    Fault.LOST: 0.03,
    Fault.TIMEOUT_AFTER: 0.02,
    Fault.INTERNAL_AFTER: 0.01,
    Fault.SLOW: 0.05,
    Fault.DELAYED: 0.2,
    Fault.DROPPED: 0.01,
    Fault.DUPLICATED: 0.03,
    Fault.GONE: 0.005,
    Fault.CRASH_IN_CALL: 0.006,
    Fault.POD_STUCK: 0.06,
    Fault.POD_FAILED: 0.03,
}
"""The probability of each fault wherever it may strike. The others are actions of the operator or of users."""

_SEVERITY = (0.0, 0.3, 1.0, 1.0, 4.0)


class Faults:
    """Decides which faults strike, and counts them."""

    def __init__(self, streams: RandomStreams) -> None:
        self.on = True
        self.on_fault: Callable[[str], object] = lambda _: None  # called with a description of each
        self.on_strike: Callable[[Fault, Author], object] = lambda *_: (
            None
        )  # called with the fault and whom it has struck
        self.counts: Counter[str] = Counter()
        severity = streams.of("weather")
        self.rates = {fault: rate * severity.choice(_SEVERITY) for fault, rate in RATES.items()}
        self._draws = {fault: streams.of(fault.value).random for fault in RATES}

    def strikes(self, fault: Fault) -> bool:
        """Draws whether a fault of this kind happens now."""
        if not self.on:
            return False
        rate = self.rates[fault]
        if rate <= 0.0 or self._draws[fault]() >= rate:
            return False
        self.happened(fault)
        self.on_strike(fault, author())
        return True

    def happened(self, what: str) -> None:
        """Counts something that was not drawn here."""
        self.counts[str(what)] += 1
        self.on_fault(f"{who}: {what}" if (who := author()).name != NOBODY else str(what))
