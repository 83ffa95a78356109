"""How the interpreter is set for a server of ours: its cycle collector runs when nobody waits, its threads change places soon, and
memory that a rush has left behind goes back to the system.

A collection walks every container made since the last one and stops everything meanwhile, up to a microsecond for each. By default
the youngest are walked after 700 new ones, which is less than one claim makes. Our objects are trees, which reference counting
frees: cycles come from tasks and errors only, so they can wait for a quiet moment.
The store's thread needs the interpreter's lock a dozen times for each commit, and waits a switch interval for it each time that
the event loop is busy: by default 5 ms, which in a burst was most of what a commit took.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable

from sandpool.loop.clock import Clock

SWITCH = 0.0005  # seconds
YOUNG, MIDDLE, OLD = 40_000, 20, 50
"""The collector's own thresholds, for a rush that does not end: new containers, then collections of the next younger ones."""
ENOUGH = 5_000
"""New containers that are worth a collection in a quiet moment: a few milliseconds."""
EVERY = 0.1  # seconds
DEEPER = 5
"""So many quiet collections, and those that survived some are walked, too: 12 ms. Seldom and long is worse for whoever comes then."""
LULL = 5
"""So many looks without anything to collect after the last collection, and memory is given back."""
SELDOM = 40
"""So many of the deeper collections without a lull, and everything is walked. The collector would never do that by itself: for
that, too, it waits for 40,000 new containers, and in quiet moments they are collected long before."""


def settle_interpreter() -> None:
    """Called once everything is loaded: that stays, so nobody need walk it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    sys.setswitchinterval(SWITCH)


def give_back() -> None:
    """The C library keeps what was freed for the next who asks: after a list of all objects, megabytes."""
    _trim(0)


async def collect_quietly(clock: Clock, calm: Callable[[], bool], give_back: Callable[[], object] = give_back) -> None:
    """Until cancelled. `calm` says whether nobody waits for anything."""
    made, quiet = 0, 0  # at first there is what the start has left
    while True:
        await clock.sleep(EVERY)
        if not calm():
            continue
        new, _, deeper = gc.get_count()
        if new >= ENOUGH:
            made, quiet = made + 1, 0
            gc.collect(0 if made % DEEPER else 1 if deeper < SELDOM else 2)
        elif quiet < LULL:
            quiet += 1
            if quiet == LULL:
                if deeper:  # what has grown old since everything was walked, and is garbage by now
                    gc.collect()
                give_back()


def _found_trim() -> Callable[[int], object]:
    """Not every C library can be told to."""
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda _: None
    return trim


_trim = _found_trim()
