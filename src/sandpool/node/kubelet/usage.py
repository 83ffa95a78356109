"""What the pods of this node use. Nobody measures until somebody asks.

Processor time is a rate: it takes two looks at a pod. The look before is remembered, so that the next answer comes at once and
tells of the time in between; who asks first, or after a long while, waits for a short window. Answers are shared by all who
ask within a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.model.metadata import Uid
from sandpool.model.usage import Used
from sandpool.node.backend import Running, Stats

AT_ONCE = 16
"""Pods that are looked at at the same time."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Seconds."""

    fresh: float = 2.0  # an answer is good for so long
    shortest: float = 0.5  # between two looks
    longest: float = 60.0  # a look that is older says nothing about now
    patience: float = 5.0  # a pod that cannot be looked at within it is left out


class Measurable(Protocol):
    """The part of a backend that is asked."""

    def running(self) -> Collection[Running]: ...

    async def stats(self, uid: Uid) -> Stats: ...


@dataclass(frozen=True, slots=True)
class _Look:
    at: float  # monotonic
    stats: Stats


class UsageSampler:
    def __init__(self, backend: Measurable, clock: Clock, windows: Windows = Windows()) -> None:
        self._backend = backend
        self._clock = clock
        self._windows = windows
        self._looks: dict[Uid, _Look] = {}
        self._used: dict[Uid, Used] = {}
        self._measured: dict[Uid, float] = {}  # when, monotonic
        self._turn = asyncio.Lock()

    async def used(self) -> Mapping[Uid, Used]:
        async with self._turn:
            there = {running.uid for running in self._backend.running() if not running.reclaimed}
            self._forget(there)
            now = self._clock.monotonic()
            due = [uid for uid in there if now - self._measured.get(uid, -self._windows.fresh) >= self._windows.fresh]
            new = await self._look(due)
            if new:
                await self._clock.sleep(self._windows.shortest)
                await self._look(new)
            return dict(self._used)

    def _forget(self, there: set[Uid]) -> None:
        for kept in (self._looks, self._used, self._measured):
            for uid in [uid for uid in kept if uid not in there]:
                del kept[uid]

    async def _look(self, uids: Iterable[Uid]) -> list[Uid]:
        """Looks at these pods; the answer are those that must be looked at once more before anything can be said."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(uid: Uid) -> bool:
            async with gate:
                try:
                    async with asyncio.timeout(self._windows.patience):
                        stats = await self._backend.stats(uid)
                except (NodeError, TimeoutError):
                    return False  # it has just ended, or is stuck: it must not hold up what is said of the others
            return self._measure(uid, _Look(self._clock.monotonic(), stats))

        wanted = list(uids)
        said = await asyncio.gather(*(one(uid) for uid in wanted))
        return [uid for uid, again in zip(wanted, said, strict=True) if again]

    def _measure(self, uid: Uid, look: _Look) -> bool:
        before = self._looks.get(uid)
        self._looks[uid] = look
        window = look.at - before.at if before is not None else 0.0
        if (
            before is None or not 0.9 * self._windows.shortest <= window <= self._windows.longest
        ):  # timers are not exact
            return True
        cores = max(0.0, look.stats.cpu_seconds - before.stats.cpu_seconds) / window  # a restart begins at zero again
        self._used[uid] = Used(cores, look.stats.memory_bytes, self._clock.now(), window)
        self._measured[uid] = look.at
        return False
