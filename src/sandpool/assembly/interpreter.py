"""How the interpreter is set for a server of ours: its cycle collector runs when nobody waits, and its threads change places soon.

A collection walks every container made since the last one and stops everything meanwhile, up to a microsecond for each. By default
the youngest are walked after 700 new ones, which is less than one claim makes. Our objects are trees, which reference counting
frees: cycles come from tasks and errors only, so they can wait for a quiet moment.
The store's thread needs the interpreter's lock a dozen times for each commit, and waits a switch interval for it each time that
the event loop is busy: by default 5 ms, which in a burst was most of what a commit took.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

from sandpool.loop.clock import Clock

SWITCH = 0.0005  # seconds
YOUNG, MIDDLE, OLD = 100_000, 20, 50
"""The collector's own thresholds, for a rush that does not end: new containers, then collections of the next younger ones."""
ENOUGH = 5_000
"""New containers that are worth a collection in a quiet moment: a few milliseconds."""
EVERY = 0.25  # seconds
DEEPER = 20
"""So many quiet collections, and those that survived some are walked, too."""


def settle_interpreter() -> None:
    """Called once everything is loaded: that stays, so nobody need walk it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    sys.setswitchinterval(SWITCH)


async def collect_quietly(clock: Clock, calm: Callable[[], bool]) -> None:
    """Until cancelled. `calm` says whether nobody waits for anything."""
    made = 0
    while True:
        await clock.sleep(EVERY)
        if gc.get_count()[0] >= ENOUGH and calm():
            made += 1
            gc.collect(0 if made % DEEPER else 1)
