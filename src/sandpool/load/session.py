"""One run on one cluster: prepare, fill the pool, drive the claims, count what the cluster did, clean up.

A session can drive several shapes, one after the other (a ramp does): each begins with a full pool.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from random import random as dice

from sandpool.base.clock import Clock
from sandpool.kube.api import Api
from sandpool.kube.http import connect
from sandpool.kube.requests import HttpRequest
from sandpool.kube.transport import Transport
from sandpool.load.arrivals import Arrival
from sandpool.load.audit import AuditLog
from sandpool.load.counts import Counts, count, count_audit
from sandpool.load.driver import Driver, Tally
from sandpool.load.errors import LoadError
from sandpool.load.follow import Follow
from sandpool.load.record import ClaimRecord
from sandpool.load.router_work import through_router
from sandpool.load.stage import ClaimBodies, Stage, Wanted, a_stage, pool_is_full
from sandpool.load.summary import Used
from sandpool.load.target import Scraper, Snapshot, Target, pages, processes
from sandpool.load.warmth import Warmth, is_warm
from sandpool.load.work import Work
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.names import name_hash

_SELDOM = (100_000, 50, 1000)  # of the garbage collector
FIRST = asyncio.FIRST_COMPLETED
_QUIET = 0.25  # seconds between two readings of counters that should not change any more
_RESTLESS = 5.0  # seconds after which a cluster that others use too is measured as it is


@dataclass(frozen=True, slots=True)
class Settings:
    wanted: Wanted
    work: Work
    connections: int = 256
    fill_timeout: float = 300.0
    clean_timeout: float = 120.0
    watch_sandboxes: bool = True
    pools: tuple[str, ...] = ()  # others that a trace names
    command: str = ""  # the command that runs first in each sandbox
    files: int = 0  # bytes of a file that is then written to each and read back
    router: str = ""  # through which; empty: the local cluster's own


@dataclass(slots=True)
class Measured:
    records: list[ClaimRecord]
    counts: Counts
    used: Used
    pool_levels: list[tuple[float, int]] = field(default_factory=list)
    refilled: float | None = None  # seconds from the start until the pool was full again
    refills: list[float | None] = field(default_factory=list)  # after each repetition of a shape
    began: float = 0.0  # by the clock
    watch_restarts: int = 0
    examples: dict[str, str] = field(default_factory=dict)  # the first message of each kind of error


class Session:
    def __init__(
        self, api: Api, stage: Stage, driver: Driver, scraper: Scraper, warmth: Warmth, settings: Settings, clock: Clock
    ) -> None:
        self.stage = stage
        self.tally: Tally = driver.tally
        self._api = api
        self._driver = driver
        self._scraper = scraper
        self._warmth = warmth
        self._settings = settings
        self._clock = clock
        self._named = 0
        self.audit: AuditLog | None = None
        self.restarts: Callable[[], int] = lambda: 0

    async def version(self) -> str:
        return await self._scraper.version()

    async def full(self) -> None:
        """The earlier of the two: the watched members, or the pool's status, which is published about once a second."""
        status = asyncio.create_task(pool_is_full(self._api, self.stage, self._settings.fill_timeout))
        members = asyncio.create_task(self._warmth.full(self.stage.replicas, ()))
        if not self._settings.watch_sandboxes:
            members.cancel()
        try:
            await asyncio.wait((status, members) if self._settings.watch_sandboxes else (status,), return_when=FIRST)
            if status.done():
                status.result()
        finally:
            for task in (status, members):
                task.cancel()
            await asyncio.gather(status, members, return_exceptions=True)

    async def measure(self, arrivals: Sequence[Arrival], times: int = 1) -> Measured:
        """Drives one shape, possibly several times, always on a full pool and idle controllers. Claims that are kept until the end are
        released when everything has been counted."""
        await self.full()
        before = await self._scraper.take()
        if self.audit is not None:
            self.audit.mark()
        self._warmth.levels[:-1] = []
        records, own, refills = await self._driven(arrivals, times)
        refilled = await self._refilled(records)
        refills.append(refilled if refilled is None else refilled - records[-1].scheduled)
        after = await self._at_rest()
        counted = pages(before, after)
        counts = count(counted, after.missing)
        if self.audit is not None:
            counts = count_audit(self.audit.requests(self.stage.namespace), counts)
        await self._driver.release_all()
        for record in records:
            record.warm = is_warm(record.name, record.sandbox, self._warmth.launched)
        used = _with_server(own, before, after, processes(counted))
        origin = self._driver.origin
        levels = [(max(0.0, at - origin), level) for at, level in self._warmth.levels]
        examples, restarts = dict(self._driver.examples), self.restarts()
        return Measured(records, counts, used, levels, refilled, refills, origin, restarts, examples)

    async def _driven(
        self, arrivals: Sequence[Arrival], times: int
    ) -> tuple[list[ClaimRecord], Used, list[float | None]]:
        refills: list[float | None] = []
        usual = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(
            *_SELDOM
        )  # most objects of a run are kept, so the garbage collector would only scan them again and again
        cpu, began = time.process_time(), self._clock.monotonic()
        try:
            records = await self._drive(arrivals)
            for _ in range(times - 1):
                full = await self._refilled(records)
                refills.append(full if full is None else full - records[-1].scheduled)
                await self._at_rest()
                records += await self._drive(arrivals, again=True)
            return records, Used(time.process_time() - cpu, self._clock.monotonic() - began), refills
        finally:
            gc.set_threshold(*usual)
            gc.unfreeze()

    async def _drive(self, arrivals: Sequence[Arrival], *, again: bool = False) -> list[ClaimRecord]:
        base = self._named
        self._named += len(arrivals)
        run = self._settings.wanted.run
        return await self._driver.drive(
            arrivals, lambda number: f"load-{run}-{base + number:06d}", self.stage.pool, again=again
        )

    async def _refilled(self, records: Sequence[ClaimRecord]) -> float | None:
        """Seconds from the start until the pool was full again; None if it was not within the time allowed."""
        try:
            if not self._warmth.levels:  # members are not watched: the pool's status, which may be old
                await self.full()
                return None
            async with asyncio.timeout(self._settings.fill_timeout):
                full = await self._warmth.full(self.stage.replicas, (record.sandbox for record in records))
                return max(0.0, full - self._driver.origin)
        except (LoadError, TimeoutError):
            return None

    async def _at_rest(self) -> Snapshot:
        """Writes after a claim (labels of its pod, status of its pool) are part of its cost: waits until the counters stop."""
        deadline = self._clock.monotonic() + _RESTLESS
        latest = await self._scraper.take()
        while self._clock.monotonic() < deadline:
            await self._clock.sleep(_QUIET)
            later = await self._scraper.take()
            still = count(pages(latest, later))
            if not still.controller_writes and not still.reconciles:
                return later
            latest = later
        return latest


def _with_server(used: Used, before: Snapshot, after: Snapshot, others: dict[str, dict[str, float]]) -> Used:
    used = replace(used, others=others)
    if before.server is None or after.server is None:
        return used
    return replace(used, server_cpu=after.server.cpu - before.server.cpu, server_peak=after.server.peak)


@asynccontextmanager
async def a_session(
    target: Target, settings: Settings, clock: Clock, said: Callable[[str], None], audit: AuditLog | None = None
) -> AsyncIterator[Session]:
    timeout = settings.work.timeout
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(connect(target.config, clock=clock, draw=dice, env=os.environ))
        source = target.source(clock)
        lines = [
            target.transport(source, size, timeout)
            for size in (settings.connections, max(1, settings.connections // 2), 4)
        ]
        for line in lines:
            stack.push_async_callback(line.close)
        scraper = Scraper(target, lines[2])
        stack.push_async_callback(scraper.close)
        stage = await stack.enter_async_context(a_stage(api, settings.wanted, settings.clean_timeout, said))
        bodies = ClaimBodies(stage.namespace, settings.wanted.run)
        inside = target.inside(settings.router)
        through = through_router(inside, settings.work, settings.command, settings.files, clock)
        work = await stack.enter_async_context(through)
        driver = Driver(lines[0], lines[1], bodies, clock, work, settings.connections, stage.namespace)
        stack.push_async_callback(driver.abandon)
        warmth = Warmth({name_hash(pool) for pool in (stage.pool, *settings.pools)})
        said(f"filling the pool {stage.namespace}/{stage.pool} with {stage.replicas} members")
        session = Session(api, stage, driver, scraper, warmth, settings, clock)
        session.audit = audit
        follows = [Follow(lines[2], clock, CLAIMS, stage.namespace, stage.labels, driver.heard)]
        if settings.watch_sandboxes:
            follows.append(Follow(lines[2], clock, SANDBOXES, stage.namespace, "", warmth.heard))
        for follow in follows:
            await stack.enter_async_context(follow.running())
        session.restarts = lambda: sum(follow.restarts for follow in follows)
        await session.full()
        await _open_connections(lines[0], settings.connections)
        yield session


async def _open_connections(transport: Transport, count: int) -> None:
    """Connects before the run, so that no handshake is measured."""
    await asyncio.gather(*(transport.send(HttpRequest("GET", "/version")) for _ in range(count)))
