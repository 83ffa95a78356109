"""Settings of the Python interpreter for our servers: garbage collection runs while nothing waits, threads switch soon, and freed memory
goes back to the system.

A garbage collection pauses the process while it walks every container object created since the last one, up to a microsecond for each.
By default the youngest generation is collected after 700 new containers; a single claim creates more. Our objects are trees, which
reference counting frees. Only tasks and exceptions form cycles, so the collector can wait for a quiet moment.
The store's thread takes the GIL a dozen times per commit, and while the event loop is busy it waits a switch interval each time. With the
default of 5 ms, that was most of the duration of a commit during a burst.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable

from sandpool.base.clock import Clock

SWITCH = 0.0005  # seconds
YOUNG, MIDDLE, OLD = 40_000, 20, 50
"""The collector's own thresholds, for a burst that does not end: new containers, then collections of the next younger generation."""
ENOUGH = 5_000
"""New containers that make a collection in a quiet moment worthwhile. It takes a few milliseconds."""
EVERY = 0.1  # seconds
DEEPER = 5
"""After this many quiet collections, the middle generation is collected as well, which takes 12 ms. Collecting it less often would take longer
each time, and delay a request more."""
LULL = 5
"""After this many checks with nothing to collect, freed memory is returned to the system."""
SELDOM = 10
"""After this many collections of the middle generation, everything is collected: 15 ms or more, once in hundreds of claims. The collector
would never do that by itself, because its threshold is never reached between two quiet moments."""
LARGE = 128 * 1024
"""Allocations of at least this many bytes get their own mapping, which goes back to the system when it is freed. This is the C library's
default too, but it raises the threshold as soon as something larger is freed. A TLS connection allocates 256 KiB and uses little of it: on
the heap, small long-lived objects between such blocks kept the memory from being returned."""
SPARE = 1024 * 1024
"""Bytes that the C library may keep at the end of its heap, to avoid frequent system calls."""


def settle_interpreter() -> None:
    """Applies the settings. Call it once everything is loaded: objects that exist by then are never walked by the collector again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    sys.setswitchinterval(SWITCH)
    _set_allocator(_MMAP_THRESHOLD, LARGE)
    _set_allocator(_TRIM_THRESHOLD, SPARE)


def give_back() -> None:
    """Returns freed memory to the system. The C library would keep it: megabytes after a list of all objects."""
    _trim(0)


async def collect_quietly(clock: Clock, calm: Callable[[], bool], give_back: Callable[[], object] = give_back) -> None:
    """Collects garbage whenever `calm` says that no urgent work waits. Runs until cancelled."""
    made, quiet = 0, 0
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
    """A function of the C library, or a stub where it does not exist."""
    try:
        found: Callable[..., object] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return lambda *_: None
    return found


_trim = _found("malloc_trim")
_set_allocator = _found("mallopt")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in glibc's malloc.h
