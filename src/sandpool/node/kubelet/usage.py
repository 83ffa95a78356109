"""Samples the CPU and memory that the pods of this node use, on demand.

CPU usage is a rate, so it takes two samples of a pod. The last sample is kept, so that the next result is available at once and covers the
time in between. The first caller, or one after a long pause, waits for a short window. Callers within a short time share one result.
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
from sandpool.node.backend import PodStatus, Stats

AT_ONCE = 16
"""How many pods are sampled concurrently."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Time limits of sampling, in seconds."""

    fresh: float = 2.0  # a result is reused for this long
    shortest: float = 0.5  # minimum between two samples
    longest: float = 60.0  # an older sample is not used
    patience: float = 5.0  # a pod that takes longer to sample is left out


class Measurable(Protocol):
    """The part of a backend that is sampled."""

    def list_pods(self) -> Collection[PodStatus]: ...

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
        self.looks: dict[Uid, _Look] = {}
        self._used: dict[Uid, Used] = {}
        self.measured: dict[Uid, float] = {}  # when, monotonic
        self._turn = asyncio.Lock()

    async def used(self) -> Mapping[Uid, Used]:
        async with self._turn:
            there = {running.uid for running in self._backend.list_pods() if not running.reclaimed}
            self._forget(there)
            now = self._clock.monotonic()
            due = [uid for uid in there if now - self.measured.get(uid, -self._windows.fresh) >= self._windows.fresh]
            new = await self._look(due)
            if new:
                await self._clock.sleep(self._windows.shortest)
                await self._look(new)
            return dict(self._used)

    def _forget(self, there: set[Uid]) -> None:
        for kept in (self.looks, self._used, self.measured):
            for uid in [uid for uid in kept if uid not in there]:
                del kept[uid]

    async def _look(self, uids: Iterable[Uid]) -> list[Uid]:
        """Samples these pods; returns those that need a second sample before there is a rate."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(uid: Uid) -> bool:
            async with gate:
                try:
                    async with asyncio.timeout(self._windows.patience):
                        stats = await self._backend.stats(uid)
                except (NodeError, TimeoutError):
                    return False  # it has just ended, or is stuck, which must not delay the results of others
            return self._measure(uid, _Look(self._clock.monotonic(), stats))

        wanted = list(uids)
        said = await asyncio.gather(*(one(uid) for uid in wanted))
        return [uid for uid, again in zip(wanted, said, strict=True) if again]

    def _measure(self, uid: Uid, look: _Look) -> bool:
        before = self.looks.get(uid)
        self.looks[uid] = look
        window = look.at - before.at if before is not None else 0.0
        if (
            before is None or not 0.9 * self._windows.shortest <= window <= self._windows.longest
        ):  # timers are not exact
            return True
        cores = (
            max(0.0, look.stats.cpu_seconds - before.stats.cpu_seconds) / window
        )  # the counter restarts at zero with the container
        self._used[uid] = Used(cores, look.stats.memory_bytes, self._clock.now(), window)
        self.measured[uid] = look.at
        return False
