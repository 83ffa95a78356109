"""A server that stalls or says 429: the clock of the load goes on, and what clients waited is in the numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sandpool.base.clock import SystemClock
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.server import ServerOptions
from sandpool.kube.api import EventType
from sandpool.load.arrivals import burst, constant
from sandpool.load.driver import Driver, Tally
from sandpool.load.follow import Follow
from sandpool.load.record import ClaimRecord
from sandpool.load.run import Plan, Watcher, Where, run_load
from sandpool.load.session import Settings
from sandpool.load.stage import ClaimBodies, Wanted
from sandpool.load.target import Target
from sandpool.load.work import Work
from sandpool.model.kinds import CLAIMS
from sandpool.model.patches import merge_patch
from support.api.local_server import LocalServer, local_server
from support.network.stalling_proxy import StallingProxy, stalling_proxy
from support.product.cluster import Cluster

STALL = 1.0


class Staller(Watcher):
    """Stalls the way to the server while claims are driven."""

    def __init__(self, proxy: StallingProxy) -> None:
        self._proxy = proxy

    def said(self, phase: str) -> None:
        if phase == "driving claims":
            asyncio.get_running_loop().call_later(0.5, self._stall)

    def _stall(self) -> None:
        """For as long as it should, however late it begins."""
        self._proxy.stall()
        asyncio.get_running_loop().call_later(STALL, self._proxy.go_on)

    def follows(self, tally: Tally) -> None:
        self.tally = tally


async def test_a_server_that_stalls_cannot_hide_it(cluster: Cluster, tmp_path: Path) -> None:
    """Forty claims a second on two connections, none of which moves for a second: those in flight wait, and so do all
    that should have been sent meanwhile. A closed loop would have seen two slow claims."""
    async with stalling_proxy(cluster.running.api) as proxy:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(Path(cluster.running.kubeconfig).read_text().replace(cluster.running.api, proxy.url))
        settings = Settings(Wanted("stall", size=100), Work(dwell=None), connections=2)
        plan = Plan({"shape": "rate", "rate": 40.0}, settings, constant(40, 2))
        outcome = await run_load(Where(kubeconfig=kubeconfig), plan, SystemClock(), Staller(proxy))
    found = outcome.result
    assert (found["claims"], found["ready"]) == (80, 80)
    hidden = [record for record in outcome.records if _late(record) > STALL / 4]
    slow = [record for record in outcome.records if (record.latency_from_sent or 0) > STALL / 4]
    assert len(hidden) >= 20, "about thirty should have been sent in the first three quarters of the stall"
    assert len(slow) < len(hidden)
    assert found["max_ms"] >= STALL * 900
    assert found["p50_ms"] > found["from_sent"]["p50_ms"]
    assert found["late_p99_ms"] > STALL * 500


def _late(record: ClaimRecord) -> float:
    return (record.sent or 0.0) - record.scheduled


@asynccontextmanager
async def granting(server: LocalServer) -> AsyncIterator[None]:
    """Makes every claim Ready at once, in the place of controllers."""
    api = LocalApi(server.objects)

    async def grant() -> None:
        async with api.watch(CLAIMS, "default") as events:
            async for event in events:
                if event.type is EventType.ADDED and event.object is not None:
                    name = event.object.metadata.name
                    ready = {"type": "Ready", "status": "True", "reason": "DependenciesReady", "message": ""}
                    ready["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                    patch = merge_patch({"status": {"conditions": [ready], "sandbox": {"name": f"box-{name}"}}})
                    await api.patch_status(CLAIMS, name, patch, "default")

    task = asyncio.create_task(grant())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def a_driver(server: LocalServer, work: Work, width: int) -> AsyncIterator[Driver]:
    clock, target = SystemClock(), Target.of(server.kubeconfig)
    source = target.source(clock)
    lines = [target.transport(source, size, 30.0) for size in (width, width, 4)]
    driver = Driver(lines[0], lines[1], ClaimBodies("default", "r"), clock, work, width, "default")
    try:
        async with Follow(lines[2], clock, CLAIMS, "default", "", driver.heard).running():
            yield driver
    finally:
        await driver.abandon()
        for line in lines:
            await line.close()


async def test_a_busy_server_is_obeyed(tmp_path: Path) -> None:
    """Four requests at once are all that it takes on; the others come back when they were told to, and all are served."""
    options = ServerOptions(limits=replace(Limits(), requests=4))
    async with (
        local_server(tmp_path, options=options) as server,
        granting(server),
        a_driver(server, Work(dwell=None), 8) as driver,
    ):
        records = await driver.drive(burst(8), lambda number: f"c{number}", "pool")
        throttled = [record for record in records if record.throttled]
        assert all(record.ready is not None and not record.error for record in records)
        assert throttled, "eight at once are more than four"
        assert driver.tally.throttled == sum(record.throttled for record in records)
        for record in throttled:
            assert record.answered is not None
            assert record.sent is not None
            assert record.answered - record.sent >= record.throttled * 1.0, "Retry-After was 1 second"
        await driver.release_all()
        assert (await LocalApi(server.objects).list(CLAIMS, "default")).items == ()


async def test_claims_that_a_server_never_takes_in_are_turned_away_and_not_failed(tmp_path: Path) -> None:
    async with local_server(tmp_path, options=ServerOptions(limits=replace(Limits(), requests=1))) as server:
        work = Work(dwell=None, timeout=0.5)  # shorter than the second after which one may come back
        async with granting(server), a_driver(server, work, 8) as driver:
            records = await driver.drive(burst(8), lambda number: f"c{number}", "pool")
            away = [record for record in records if record.turned_away]
            assert len(away) == driver.tally.turned_away > 0
            assert driver.tally.failed == 0
            assert not any(record.error for record in records)
            assert all(record.answered is None and record.ready is None for record in away)
            assert any(record.ready is not None for record in records)


async def test_a_claim_that_was_told_to_come_back_has_its_time_from_when_it_was_taken_in(tmp_path: Path) -> None:
    """It comes back after a second and is then served at once: that is no failure, though its patience is hardly longer."""
    async with local_server(tmp_path, options=ServerOptions(limits=replace(Limits(), requests=1))) as server:
        work = Work(dwell=None, timeout=1.5)
        async with granting(server), a_driver(server, work, 4) as driver:
            records = await driver.drive(burst(4), lambda number: f"c{number}", "pool")
            assert driver.tally.failed == 0
            assert not any(record.error for record in records)
            assert all(record.created < record.served for record in records if record.ready is not None)
