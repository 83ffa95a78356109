from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sandpool.base.clock import LoopClock
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.kube.api import Event
from sandpool.kube.errors import BadRequest, ConfigError, Forbidden, Gone, Refused, TooManyRequests
from sandpool.loop.cache import Cache
from sandpool.loop.reflector import Pace, Reflector, Scope
from sandpool.model.core import ConfigMap, Namespace
from sandpool.model.kinds import CONFIG_MAPS, NAMESPACES
from sandpool.telemetry.metrics import Metrics
from support.api.flaky_api import FlakyApi, nothing
from support.simulated.loop_cluster import START, a_cluster, half, put

pytestmark = pytest.mark.looptime


def names(cache: Cache[ConfigMap]) -> list[str]:
    return sorted(obj.metadata.name for obj in cache)


async def server_names(api: FlakyApi) -> list[str]:
    return sorted(obj.metadata.name for obj in (await api.list(CONFIG_MAPS)).items)


@asynccontextmanager
async def reflecting(api: FlakyApi, pace: Pace = Pace(), **options: Any) -> AsyncIterator[Reflector[ConfigMap]]:
    reflector = Reflector(api, Cache(CONFIG_MAPS), LoopClock(START), Metrics(), half, pace=pace, **options)
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("streaming", [False, True])
async def test_lists_in_pages_or_streaming_then_follows(streaming: bool) -> None:
    async with a_cluster() as api:
        for n in range(7):
            await put(api, f"m{n}")
        async with reflecting(api, Pace(page=3, streaming=streaming)) as reflector:
            await reflector.cache.synced.wait()
            assert names(reflector.cache) == await server_names(api)
            assert api.calls.count("list configmaps") == (0 if streaming else 3) + 1
            await put(api, "late")
            await api.delete(CONFIG_MAPS, "m3", "default")
            await asyncio.sleep(0.01)
            assert names(reflector.cache) == await server_names(api)


async def test_it_knows_when_it_last_heard_of_its_resource() -> None:
    async with a_cluster() as api:
        now = asyncio.get_running_loop().time
        async with reflecting(api) as reflector:
            assert reflector.last_contact == float("-inf")
            await reflector.cache.synced.wait()
            assert reflector.last_contact == now()
            await asyncio.sleep(5)
            await put(api, "late")
            await asyncio.sleep(1)
            assert 0.9 < now() - reflector.last_contact <= 1
            api.before = _down
            api.break_watches(Refused("gone"))
            await asyncio.sleep(100)
            assert now() - reflector.last_contact > 99
            assert isinstance(reflector.trouble, Refused)


async def _down(verb: str, plural: str) -> None:
    raise Refused("gone")


@pytest.mark.parametrize("error", [None, Refused("connection refused")])
async def test_a_broken_watch_resumes_without_a_list_and_without_repetition(error: Exception | None) -> None:
    async with a_cluster() as api, reflecting(api) as reflector:
        steps: list[str] = []
        reflector.cache.subscribe(lambda old, new: steps.append((new or old).metadata.resource_version))  # type: ignore[union-attr]
        await reflector.cache.synced.wait()
        for n in range(5):
            await put(api, f"m{n}")
            await asyncio.sleep(5)
            api.break_watches(error)
            await put(api, f"n{n}")
            await asyncio.sleep(60)
        assert names(reflector.cache) == await server_names(api)
        assert len(steps) == 10 == len(set(steps))
        assert api.calls.count("list configmaps") == 2  # the reflector's and this test's


async def test_a_forgotten_revision_leads_to_a_new_list() -> None:
    async with a_cluster(window=5, history_limits=HistoryLimits(changes=4)) as api, reflecting(api) as reflector:
        await put(api, "first")
        await reflector.cache.synced.wait()
        await asyncio.sleep(1)  # the watch is there, and waits
        refused = [Refused("down")] * 3

        async def down(verb: str, plural: str) -> None:
            if verb == "watch" and refused:
                raise refused.pop()

        api.before = down
        api.break_watches(None)
        for n in range(30):
            await put(api, f"m{n}")
        await api.delete(CONFIG_MAPS, "first", "default")
        await asyncio.sleep(60)
        assert names(reflector.cache) == await server_names(api)
        assert "first" not in names(reflector.cache)
        assert api.calls.count("list configmaps") == 3


async def test_failures_are_spaced_out_and_reported_until_something_works() -> None:
    async with a_cluster() as api:
        tried: list[float] = []

        async def forbidden(verb: str, plural: str) -> None:
            tried.append(asyncio.get_running_loop().time())
            if len(tried) <= 5:
                raise Forbidden("configmaps is forbidden")

        api.before = forbidden
        async with reflecting(api, Pace(first=1.0, most=4.0)) as reflector:
            await asyncio.sleep(10)
            assert isinstance(reflector.trouble, Forbidden)
            await reflector.cache.synced.wait()
            assert reflector.trouble is None
        gaps = [round(b - a, 3) for a, b in itertools.pairwise(tried)]
        assert gaps[:5] == [1.0, 2.0, 4.0, 4.0, 4.0]


async def test_too_many_requests_is_waited_for_as_long_as_the_server_says() -> None:
    async with a_cluster() as api:
        tried: list[float] = []

        async def busy(verb: str, plural: str) -> None:
            tried.append(asyncio.get_running_loop().time())
            if len(tried) == 1:
                raise TooManyRequests("busy", retry_after=17)

        api.before = busy
        async with reflecting(api) as reflector:
            await reflector.cache.synced.wait()
        assert tried[1] - tried[0] == pytest.approx(17)


async def test_a_watch_that_is_always_gone_does_not_spin() -> None:
    async with a_cluster() as api:

        async def gone(verb: str, plural: str) -> None:
            if verb == "watch":
                raise Gone("too old")

        api.before = gone
        async with reflecting(api, Pace(first=1.0, most=8.0)):
            await asyncio.sleep(60)
        assert api.calls.count("list configmaps") < 12


async def test_a_server_without_streaming_lists_is_listed_in_pages() -> None:
    async with a_cluster() as api:
        await put(api, "a")
        refused = [BadRequest("sendInitialEvents is forbidden")]

        async def old_server(verb: str, plural: str) -> None:
            if verb == "watch" and refused:
                raise refused.pop()

        api.before = old_server
        async with reflecting(api, Pace(streaming=True)) as reflector:
            await reflector.cache.synced.wait()
            assert names(reflector.cache) == ["a"]
            assert "list configmaps" in api.calls


async def test_quiet_watches_are_renewed_without_a_list() -> None:
    async with a_cluster() as api, reflecting(api, Pace(watch=100)) as reflector:
        await reflector.cache.synced.wait()
        await asyncio.sleep(1000)
        assert api.calls.count("list configmaps") == 1
        assert 6 <= api.calls.count("watch configmaps") <= 8


async def test_a_watch_that_outlives_its_end_is_dead() -> None:
    async with a_cluster() as api:
        hangs = [True]

        async def hang(verb: str, plural: str) -> None:
            if verb == "watch" and hangs:
                hangs.pop()
                await asyncio.Event().wait()

        api.before = hang
        async with reflecting(api, Pace(watch=100, overdue=30)) as reflector:
            await put(api, "a")
            await asyncio.sleep(200)
            assert names(reflector.cache) == ["a"]


async def test_one_namespace_only() -> None:
    async with a_cluster() as api, reflecting(api, scope=Scope(namespace="other")) as reflector:
        await reflector.cache.synced.wait()
        await put(api, "a")
        await asyncio.sleep(1)
        assert names(reflector.cache) == []
        assert reflector.name == "configmaps in namespace other"


async def test_a_store_that_was_empty_when_listed_is_followed_from_its_first_write() -> None:
    async with a_cluster(namespaces=()) as api:

        async def meanwhile(verb: str, plural: str) -> None:
            if verb == "watch":
                api.before = nothing
                for name in "cab":  # not in the order of names
                    await api.create(NAMESPACES, {"metadata": {"name": name}})

        api.before = meanwhile
        cache: Cache[Namespace] = Cache(NAMESPACES)
        task = asyncio.create_task(Reflector(api, cache, LoopClock(START), Metrics(), half).run())
        await asyncio.sleep(1)
        assert sorted(obj.metadata.name for obj in cache) == ["a", "b", "c"]
        await api.create(NAMESPACES, {"metadata": {"name": "d"}})
        await asyncio.sleep(1)
        assert len(cache) == 4
        task.cancel()
        await asyncio.wait([task])


async def test_a_bug_is_not_retried() -> None:
    async with a_cluster() as api:
        cache: Cache[ConfigMap] = Cache(CONFIG_MAPS)

        def broken(old: ConfigMap | None, new: ConfigMap | None) -> None:
            raise ZeroDivisionError

        cache.subscribe(broken)
        await put(api, "a")
        with pytest.raises(ZeroDivisionError):
            await Reflector(api, cache, LoopClock(START), Metrics(), half).run()


async def test_a_server_that_forgets_at_once_is_not_listed_in_a_hot_loop() -> None:
    """Each watch says something and then that we are too slow: as many lists as the delays allow, no more."""
    async with a_cluster() as api, reflecting(api, Pace(first=1.0, most=10.0)) as reflector:
        await reflector.cache.synced.wait()

        async def write(verb: str, plural: str) -> None:
            if verb == "watch":
                assert api.calls.count("list configmaps") < 20, "a hot loop"
                await put(api, f"m{len(api.calls)}")
                asyncio.get_running_loop().call_later(0.01, api.break_watches, Gone("too slow"))

        await asyncio.sleep(1)
        api.before = write
        api.break_watches(Gone("too slow"))
        await asyncio.sleep(60)
        assert api.calls.count("list configmaps") > 5
        api.before = nothing
        await asyncio.sleep(30)
        assert names(reflector.cache) == await server_names(api)


async def test_credentials_that_cannot_be_renewed_now_do_not_end_it() -> None:
    async with a_cluster() as api:
        failures = [ConfigError("exec plugin login: failed with exit code 1; run it by hand")] * 3

        async def fail(verb: str, plural: str) -> None:
            if failures:
                raise failures.pop()

        api.before = fail
        async with reflecting(api) as reflector:
            await asyncio.sleep(0.1)
            assert isinstance(reflector.trouble, ConfigError)
            await reflector.cache.synced.wait()


@pytest.mark.parametrize("streaming", [False, True])
async def test_what_comes_together_is_taken_together(streaming: bool) -> None:
    """From an Api that hands out batches: all that a commit brought is one call of the cache."""
    taken: list[int] = []

    class Counting(Cache[ConfigMap]):
        def apply_all(self, events: Iterable[Event[ConfigMap]]) -> None:
            batch = list(events)
            taken.append(len(batch))
            super().apply_all(batch)

    async with a_cluster() as flaky:
        api = flaky.inner
        await api.create(CONFIG_MAPS, {"metadata": {"name": "first"}}, "default")
        cache = Counting(CONFIG_MAPS)
        reflector = Reflector(api, cache, LoopClock(START), Metrics(), half, pace=Pace(streaming=streaming))
        task = asyncio.create_task(reflector.run())
        await cache.synced.wait()
        await asyncio.sleep(0.01)
        made = (api.create(CONFIG_MAPS, {"metadata": {"name": f"m{n}"}}, "default") for n in range(20))
        await asyncio.gather(*made)
        await asyncio.sleep(0.01)
        assert names(cache) == await server_names(flaky)
        assert sum(taken) == 20
        assert len(taken) <= 2
        task.cancel()
        await asyncio.wait([task])
