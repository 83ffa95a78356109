"""Profiles of a running process for debugging: CPU time, memory, and what tasks wait for.

The CPU profile is taken from outside, by a thread that looks at the event loop's stack a hundred times a second: it costs
next to nothing and needs no preparation. The memory profile traces allocations for as long as it is asked to, which slows
everything down by a half or so; without seconds it only counts what lives.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from types import FrameType

from sandpool.telemetry.pages import Handler, Page

RATE = 100.0
LONGEST = 120.0
TOP = 60


def profile_pages() -> dict[str, Handler]:
    busy = asyncio.Lock()
    return {
        "/debug/profile": lambda query: _alone(busy, cpu_page, query),
        "/debug/memory": lambda query: _alone(busy, memory_page, query),
        "/debug/tasks": tasks_page,
    }


async def _alone(busy: asyncio.Lock, page: Handler, query: Mapping[str, str]) -> Page:
    if busy.locked():
        return Page(b"a profile is being taken; try again when it is done\n", 409)
    async with busy:
        return await page(query)


async def cpu_page(query: Mapping[str, str]) -> Page:
    """Folded stacks with counts, as flame graph tools read them."""
    seconds = _seconds(query, 10.0)
    if seconds is None:
        return _wrong()
    stacks = await asyncio.to_thread(sample, threading.get_ident(), seconds)
    return Page("".join(f"{stack} {count}\n" for stack, count in stacks.most_common()).encode())


def sample(thread: int, seconds: float, rate: float = RATE) -> Counter[str]:
    stacks: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        frame = sys._current_frames().get(thread)
        if frame is not None:
            stacks[_folded(frame)] += 1
        time.sleep(1 / rate)
    return stacks


def _folded(frame: FrameType | None) -> str:
    """Outermost first, separated by semicolons."""
    names = []
    while frame is not None:
        code = frame.f_code
        names.append(f"{code.co_filename.rpartition('site-packages/')[2]}:{code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return ";".join(reversed(names)).replace(" ", "_")


async def memory_page(query: Mapping[str, str]) -> Page:
    seconds = _seconds(query, 0.0)
    if seconds is None:
        return _wrong()
    lines = [f"resident: {_resident()} bytes", f"objects that the collector knows: {len(gc.get_objects())}", ""]
    counts = Counter(type(each).__qualname__ for each in gc.get_objects())
    lines += [f"{count:>10} {name}" for name, count in counts.most_common(TOP)]
    if seconds:
        lines += ["", f"allocated within {seconds:g} s and still alive, by line:", *await _allocated(seconds)]
    return Page(("\n".join(lines) + "\n").encode())


async def _allocated(seconds: float) -> list[str]:
    tracemalloc.start()
    try:
        await asyncio.sleep(seconds)
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    return [str(statistic) for statistic in snapshot.statistics("lineno")[:TOP]]


def _resident() -> int:
    """Of this process, as Linux counts it."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


async def tasks_page(query: Mapping[str, str]) -> Page:
    """What tasks wait for, with how many of them do."""
    places: Counter[str] = Counter()
    for task in asyncio.all_tasks():
        stack = task.get_stack(limit=8)
        places[_folded(stack[-1]) if stack else "not started"] += 1
    return Page("".join(f"{count:>6} {place}\n" for place, count in places.most_common()).encode())


def _seconds(query: Mapping[str, str], default: float) -> float | None:
    try:
        seconds = float(query.get("seconds", default))
    except ValueError:
        return None
    return seconds if 0 <= seconds <= LONGEST else None


def _wrong() -> Page:
    return Page(f"seconds must be a number from 0 to {LONGEST:g}\n".encode(), 400)
