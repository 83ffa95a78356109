"""A new leader's first reads: complete, in order, and never a step back."""

from __future__ import annotations

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.errors import Gone, InternalError, Unreachable
from sandpool.loop.cache import Cache
from sandpool.loop.reflector import catch_up, catch_up_at_last
from sandpool.model.core import ConfigMap
from sandpool.model.kinds import CONFIG_MAPS
from sandpool.model.metadata import Key
from support.api.faulty_api import FaultyApi
from support.simulated.loop_cluster import START, a_cluster, put

pytestmark = pytest.mark.looptime


async def test_everything_is_there_over_many_pages() -> None:
    async with a_cluster() as api:
        for number in range(3):
            await put(api, f"a{number}")
        cache: Cache[ConfigMap] = Cache(CONFIG_MAPS)
        await catch_up(api, cache, page=2)
        assert len(cache) == 3
        assert cache.revision == (await api.list(CONFIG_MAPS)).revision


async def test_a_snapshot_that_is_forgotten_is_taken_whole() -> None:
    async with a_cluster() as api:
        for number in range(3):
            await put(api, f"a{number}")
        cache: Cache[ConfigMap] = Cache(CONFIG_MAPS)
        faulty = FaultyApi(api)
        faulty.on("list", skip=1).refuse(Gone("compacted"))
        await catch_up(faulty, cache, page=2)
        assert len(cache) == 3


async def test_a_server_that_is_in_trouble_is_asked_again() -> None:
    async with a_cluster() as api:
        await put(api, "a")
        cache: Cache[ConfigMap] = Cache(CONFIG_MAPS)
        faulty = FaultyApi(api)
        faulty.on("list", times=2).refuse(InternalError("broken"))
        faulty.on("list", skip=2).refuse(Unreachable("cut"))
        await catch_up_at_last(faulty, cache, LoopClock(START))
        assert len(cache) == 1


async def test_a_watch_that_is_further_is_not_taken_back() -> None:
    """The list was made before the write that the watch has shown meanwhile."""
    async with a_cluster() as api:
        await put(api, "a")
        cache: Cache[ConfigMap] = Cache(CONFIG_MAPS)
        old = await api.list(CONFIG_MAPS)
        await put(api, "b")
        new = await api.list(CONFIG_MAPS)
        cache.replace(new.items, new.revision)

        class Late:
            async def list(self, *args: object, **more: object) -> object:
                return old

        await catch_up(Late(), cache)  # type: ignore[arg-type]
        assert cache.get(Key("default", "b")) is not None
        assert cache.revision == new.revision


async def test_what_the_cache_has_already_is_not_held_twice() -> None:
    async with a_cluster() as api:
        await put(api, "a")
        await put(api, "b")
        kept: list[str] = []

        def keep(one: ConfigMap) -> ConfigMap:
            kept.append(one.metadata.name)
            return one

        cache: Cache[ConfigMap] = Cache(CONFIG_MAPS, keep=keep)
        listed = await api.list(CONFIG_MAPS)
        cache.replace(listed.items, listed.revision)
        before = [cache.get(each.metadata.key) for each in listed.items]
        kept.clear()
        await put(api, "c")
        await catch_up(api, cache)
        assert [cache.get(each.metadata.key) for each in listed.items] == before
        assert set(kept) == {"c"}, "of what is known nothing is looked at again"
        assert len(cache) == 3
