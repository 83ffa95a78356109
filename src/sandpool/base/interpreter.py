"""How the interpreter is set for a server of ours: its cycle collector runs when nobody waits, its threads change places soon, and
memory that connections and a rush have left behind goes back to the system.

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

from sandpool.base.clock import Clock

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
SELDOM = 10
"""So many of the deeper ones, and everything is walked, for 15 ms and more: once in hundreds of claims. The collector would never do that
by itself: it waits for more new containers than there ever are between two quiet moments."""
LARGE = 128 * 1024
"""From so many bytes on, memory is taken from the system and given back piece by piece. That is the C library's default, too, but it raises it as soon as
something larger is freed. A TLS connection takes 256 KiB and uses few of them: inside the heap, small things that live long came to lie between those."""
SPARE = 1024 * 1024
"""Bytes that it may keep at the end of its heap, so as not to ask the system for them again and again."""


def settle_interpreter() -> None:
    """Called once everything is loaded: that stays, so nobody need walk it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    sys.setswitchinterval(SWITCH)
    _set_allocator(_MMAP_THRESHOLD, LARGE)
    _set_allocator(_TRIM_THRESHOLD, SPARE)


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
                give_back()


def _found(name: str) -> Callable[..., object]:
    """A function of the C library. Not every one has it."""
    try:
        found: Callable[..., object] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return lambda *_: None
    return found


_trim = _found("malloc_trim")
_set_allocator = _found("mallopt")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as malloc.h of the GNU C library calls them
