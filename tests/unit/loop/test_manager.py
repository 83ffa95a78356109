from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest

from sandpool.base.clock import LoopClock
from sandpool.base.errors import SandpoolError
from sandpool.kube.errors import Forbidden, Refused
from sandpool.loop.cache import Cache
from sandpool.loop.controller import Controller
from sandpool.loop.errors import LeadershipLost, NotSynced
from sandpool.loop.lease import Elector
from sandpool.loop.manager import Deadlines, Manager, Parts
from sandpool.loop.outcome import Done
from sandpool.loop.reflector import Reflector
from sandpool.model.core import ConfigMap
from sandpool.model.kinds import CONFIG_MAPS, LEASES, SECRETS
from sandpool.model.metadata import Key
from sandpool.model.patches import merge_patch
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory
from support.api.flaky_api import FlakyApi
from support.simulated.loop_cluster import START, a_cluster, half, put

pytestmark = pytest.mark.looptime


@dataclass
class Process:
    """A whole small process: two reflectors, an elector, a controller of ConfigMaps."""

    api: FlakyApi
    identity: str = "one"
    seen: list[str] = field(default_factory=list)
    work: Callable[[Key], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        clock, metrics = LoopClock(START), Metrics()
        self.stop = asyncio.Event()
        self.cache: Cache[ConfigMap] = Cache(CONFIG_MAPS)
        self.secrets = Cache(SECRETS)
        self.controller: Controller[Key] = Controller("maps", self.reconcile, clock, metrics, ReconcileHistory())
        self.controller.on(self.cache, lambda obj: [obj.metadata.key], reduce=lambda obj: obj.data)
        self.elector = Elector(
            self.api, clock, metrics, half, name="sandpool", namespace="default", identity=self.identity
        )
        reflectors = [Reflector(self.api, cache, clock, metrics, half) for cache in (self.cache, self.secrets)]
        self.parts = Parts(reflectors=reflectors, controllers=[self.controller], elector=self.elector)
        self.manager = Manager(self.parts, Deadlines(synced=60, drained=30))

    async def reconcile(self, key: Key) -> Done:
        assert self.secrets.synced.is_set()
        assert self.elector.leading
        self.seen.append(key.name)
        if self.work is not None:
            await self.work(key)
        return Done()


async def holder(api: FlakyApi) -> str | None:
    return (await api.get(LEASES, "sandpool", "default")).spec.holder_identity


async def test_starts_in_order_works_and_stops_in_order() -> None:
    async with a_cluster() as api:
        await put(api, "a")
        process = Process(api)

        async def slow(key: Key) -> None:
            await asyncio.sleep(10)
            assert api.flow.is_set()
            assert await holder(api) == "one", "the lease outlives the work"

        process.work = slow
        running = asyncio.create_task(process.manager.run(process.stop))
        await process.manager.ready.wait()
        await asyncio.sleep(1)
        assert process.seen == ["a"]
        for n in range(30):
            await put(api, f"late{n}")
        await asyncio.sleep(0.1)
        process.stop.set()
        await running
        assert len(process.seen) == 31, "what waited was finished"
        assert await holder(api) == ""
        assert not process.manager.ready.is_set()


async def test_a_cache_that_does_not_fill_is_named_with_its_trouble() -> None:
    async with a_cluster() as api:
        process = Process(api)

        async def forbidden(verb: str, plural: str) -> None:
            if plural == "secrets":
                raise Forbidden("secrets is forbidden")

        api.before = forbidden
        with pytest.raises(NotSynced, match=r"within 60 s: the cache of secrets \(Forbidden: secrets is forbidden\)"):
            await process.manager.run(process.stop)
        assert asyncio.get_running_loop().time() == pytest.approx(60)
        assert process.seen == []


async def test_the_second_process_waits_and_takes_over() -> None:
    async with a_cluster() as api:
        await put(api, "a")
        first, second = Process(api, "one"), Process(api, "two")
        running = [asyncio.create_task(process.manager.run(process.stop)) for process in (first, second)]
        await asyncio.sleep(100)
        assert (first.seen, second.seen) == (["a"], [])
        first.stop.set()
        await running[0]
        await second.manager.ready.wait()
        await asyncio.sleep(1)
        assert second.seen == ["a"]
        second.stop.set()
        await running[1]


async def test_stop_while_waiting_for_the_lease() -> None:
    async with a_cluster() as api:
        await api.create(
            LEASES,
            {"metadata": {"name": "sandpool"}, "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600}},
            "default",
        )
        process = Process(api)
        running = asyncio.create_task(process.manager.run(process.stop))
        await asyncio.sleep(100)
        assert not process.manager.ready.is_set()
        process.stop.set()
        await running
        assert await holder(api) == "other"


async def test_losing_the_lease_cuts_the_work_off() -> None:
    async with a_cluster() as api:
        await put(api, "a")
        process = Process(api)
        ended: list[str] = []

        async def endless(key: Key) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(key.name)

        process.work = endless
        running = asyncio.create_task(process.manager.run(process.stop))
        await process.manager.ready.wait()
        await asyncio.sleep(1)
        await api.patch(LEASES, "sandpool", merge_patch({"spec": {"holderIdentity": "two"}}), "default")
        with pytest.raises(LeadershipLost):
            await running
        assert ended == ["a"]
        assert await holder(api) == "two"


async def test_no_server_means_no_leader_in_time() -> None:
    async with a_cluster() as api:
        process = Process(api)
        running = asyncio.create_task(process.manager.run(process.stop))
        await process.manager.ready.wait()

        async def down(verb: str, plural: str) -> None:
            raise Refused("down")

        api.before = down
        with pytest.raises(LeadershipLost):
            await running
        assert asyncio.get_running_loop().time() <= 13


async def test_work_that_does_not_end_is_cut_off_after_the_deadline() -> None:
    async with a_cluster() as api:
        await put(api, "a")
        process = Process(api)

        async def endless(key: Key) -> None:
            await asyncio.Event().wait()

        process.work = endless
        running = asyncio.create_task(process.manager.run(process.stop))
        await process.manager.ready.wait()
        await asyncio.sleep(1)
        process.stop.set()
        await running
        assert asyncio.get_running_loop().time() == pytest.approx(31)
        assert await holder(api) == ""


async def test_a_failing_part_stops_the_whole_with_its_error() -> None:
    async with a_cluster() as api:
        process = Process(api)

        def bug(old: ConfigMap | None, new: ConfigMap | None) -> None:
            raise ZeroDivisionError("a bug in a trigger")

        running = asyncio.create_task(process.manager.run(process.stop))
        await process.manager.ready.wait()
        process.cache.subscribe(bug)
        await put(api, "a")
        with pytest.raises(ZeroDivisionError, match="a bug in a trigger"):
            await running
        assert await holder(api) == "", "the next process need not wait"


async def test_a_service_that_ends_is_a_failure() -> None:
    async def short() -> None:
        await asyncio.sleep(5)

    with pytest.raises(SandpoolError, match="a service ended by itself"):
        await Manager(Parts(services=[short])).run(asyncio.Event())


async def test_prepare_comes_before_the_controllers() -> None:
    order: list[str] = []

    async def prepare() -> None:
        await asyncio.sleep(3)
        order.append("prepared")

    async def reconcile(key: str) -> Done:
        order.append(key)
        return Done()

    controller: Controller[str] = Controller("c", reconcile, LoopClock(START), Metrics(), ReconcileHistory())
    controller.wake("k", "test")
    stop = asyncio.Event()
    manager = Manager(Parts(controllers=[controller], prepare=prepare))
    running = asyncio.create_task(manager.run(stop))
    await manager.ready.wait()
    stop.set()
    await running
    assert order == ["prepared", "k"]


async def test_the_lease_is_renewed_while_something_is_prepared() -> None:
    async with a_cluster() as api:
        process = Process(api)

        async def prepare() -> None:
            await asyncio.sleep(40)
            assert process.elector.leading

        manager = Manager(replace(process.parts, prepare=prepare))
        running = asyncio.create_task(manager.run(process.stop))
        await asyncio.wait((running, asyncio.create_task(manager.ready.wait())), return_when=asyncio.FIRST_COMPLETED)
        assert manager.ready.is_set(), running.exception()
        process.stop.set()
        await running


async def test_a_stop_does_not_wait_for_what_is_being_prepared() -> None:
    async def prepare() -> None:
        await asyncio.sleep(3600)

    stop = asyncio.Event()
    running = asyncio.create_task(Manager(Parts(prepare=prepare)).run(stop))
    await asyncio.sleep(1)
    stop.set()
    async with asyncio.timeout(1):
        await running
