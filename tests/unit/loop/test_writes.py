from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.api import Api, Preconditions
from sandpool.kube.errors import Conflict, NotFound, Unreachable
from sandpool.loop.cache import Cache
from sandpool.loop.reflector import Reflector
from sandpool.loop.writes import Writes
from sandpool.model.core import ConfigMap
from sandpool.model.kinds import CONFIG_MAPS
from sandpool.model.metadata import Key, Revision
from sandpool.model.patches import json_patch, merge_patch
from sandpool.telemetry.metrics import Metrics
from support.api.flaky_api import FlakyApi, nothing
from support.simulated.loop_cluster import START, a_cluster, half, put

A = Key("default", "a")


@dataclass
class World:
    api: FlakyApi
    cache: Cache[ConfigMap]
    writes: Api
    steps: list[tuple[str | None, str | None]]

    async def settle(self) -> None:
        """The watch, which lags until now, catches up."""
        self.api.flow.set()
        page = await self.api.list(CONFIG_MAPS, "default")
        await asyncio.sleep(120)  # in virtual time: long enough for a bookmark
        assert self.cache.revision >= page.revision
        assert {obj.metadata.key: obj for obj in self.cache} == {obj.metadata.key: obj for obj in page.items}


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    async with a_cluster() as api:
        cache: Cache[ConfigMap] = Cache(CONFIG_MAPS)
        reflector = Reflector(api, cache, LoopClock(START), Metrics(), half)
        task = asyncio.create_task(reflector.run())
        await cache.synced.wait()
        api.flow.clear()
        world = World(api, cache, Writes(api, [cache]), [])
        cache.subscribe(
            lambda old, new: world.steps.append(
                (old and old.metadata.resource_version, new and new.metadata.resource_version)  # type: ignore[arg-type]
            )
        )
        try:
            yield world
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.mark.looptime
async def test_every_answer_is_in_the_cache_when_the_call_returns_and_told_once() -> None:
    async with a_world() as world:
        made = await put(world.writes, "a", {"x": "1"})
        assert world.cache.get(A) is made
        patched = await world.writes.patch(CONFIG_MAPS, "a", merge_patch({"data": {"x": "2"}}), "default")
        assert world.cache.get(A) is patched
        assert await world.writes.delete(CONFIG_MAPS, "a", "default") is None
        assert world.cache.get(A) is None
        told = list(world.steps)
        assert len(told) == 3
        await world.settle()
        assert world.steps == told, "the watch said it all again, and nobody heard"
        assert not world.cache.tombstones


@pytest.mark.looptime
async def test_a_consistent_get_is_learned() -> None:
    async with a_world() as world:
        made = await put(world.api, "a")  # past the wrapper
        await world.api.inner.get(CONFIG_MAPS, "a", "default")
        assert await world.writes.get(CONFIG_MAPS, "a", "default") == made
        assert world.cache.get(A) == made


@pytest.mark.looptime
async def test_an_object_that_a_consistent_get_does_not_find_is_gone() -> None:
    async with a_world() as world:
        made = await put(world.writes, "a")
        await world.api.delete(CONFIG_MAPS, "a", "default")
        assert world.cache.get(A) is made, "the watch lags"
        with pytest.raises(NotFound):
            await world.writes.get(CONFIG_MAPS, "a", "default")
        assert world.cache.get(A) is None
        assert world.steps[-1] == (made.metadata.resource_version, None)
        told = list(world.steps)
        await world.settle()
        assert world.steps == told
        assert not world.cache.tombstones


@pytest.mark.parametrize("status", [False, True])
@pytest.mark.looptime
async def test_an_object_that_a_patch_does_not_find_is_gone(status: bool) -> None:
    async with a_world() as world:
        await put(world.writes, "a")
        await world.api.delete(CONFIG_MAPS, "a", "default")
        patch = world.writes.patch_status if status else world.writes.patch
        with pytest.raises(NotFound):
            await patch(CONFIG_MAPS, "a", merge_patch({"data": {"x": "y"}}), "default")
        assert (world.cache.get(A) is None) is not status, "a ConfigMap has no status: that 404 is about something else"
        await world.settle()
        assert not world.cache.tombstones


@pytest.mark.parametrize("verb", ["get", "patch", "delete"])
@pytest.mark.looptime
async def test_a_404_that_does_not_name_the_object_is_not_about_it(verb: str) -> None:
    """As when a server does not serve the resource just now: the object would never be seen again."""
    async with a_world() as world:
        made = await put(world.writes, "a")

        async def not_served(called: str, plural: str) -> None:
            if called == verb:
                raise NotFound("the server could not find the requested resource")

        world.api.before = not_served
        more = [merge_patch({"data": {"x": "y"}})] if verb == "patch" else []
        with pytest.raises(NotFound):
            await getattr(world.writes, verb)(CONFIG_MAPS, "a", *more, namespace="default")
        world.api.before = nothing
        assert world.cache.get(A) is made
        assert not world.cache.leaving(made)
        await world.writes.patch(CONFIG_MAPS, "a", merge_patch({"data": {"x": "y"}}), "default")
        await world.settle()


@pytest.mark.looptime
async def test_what_comes_while_a_get_finds_nothing_stays() -> None:
    async with a_world() as world:

        async def late(verb: str, plural: str) -> None:
            if verb == "get":
                world.api.before = nothing
                try:
                    await world.api.get(CONFIG_MAPS, "a", "default")
                finally:
                    await put(world.writes, "a")  # after the server has answered, before we hear of it

        world.api.before = late
        with pytest.raises(NotFound):
            await world.writes.get(CONFIG_MAPS, "a", "default")
        assert world.cache.get(A) is not None
        await world.settle()


@pytest.mark.looptime
async def test_an_answer_to_a_get_that_was_long_on_its_way_is_not_older_than_what_is_known() -> None:
    async with a_world() as world:
        await put(world.writes, "a", {"x": "1"})

        async def change(verb: str, plural: str) -> None:
            if verb == "get":
                await world.writes.patch(CONFIG_MAPS, "a", merge_patch({"data": {"x": "2"}}), "default")

        world.api.after = change
        found = await world.writes.get(CONFIG_MAPS, "a", "default")
        assert found is world.cache.get(A)
        assert found.data == {"x": "2"}
        await world.settle()


@pytest.mark.looptime
async def test_while_a_delete_is_under_way_the_object_is_leaving() -> None:
    async with a_world() as world:
        made = await put(world.writes, "a")
        seen: list[bool] = []

        async def look(verb: str, plural: str) -> None:
            seen.append(world.cache.leaving(made))

        world.api.before = world.api.after = look
        await world.writes.delete(CONFIG_MAPS, "a", "default", preconditions=Preconditions(uid=made.metadata.uid))
        assert seen == [True, True]
        await world.settle()


@pytest.mark.looptime
async def test_a_delete_that_leaves_finalizers_is_an_update() -> None:
    async with a_world() as world:
        made = await put(world.writes, "a", finalizers=["test.io/hold"])
        left = await world.writes.delete(CONFIG_MAPS, "a", "default")
        assert left is not None
        assert left.metadata.leaving
        assert world.cache.get(A) is left
        assert world.steps[-1] == (made.metadata.resource_version, left.metadata.resource_version)
        await world.settle()
        await world.writes.patch(
            CONFIG_MAPS, "a", json_patch([{"op": "remove", "path": "/metadata/finalizers"}]), "default"
        )
        await world.settle()
        assert len(world.cache) == 0
        assert not world.cache.tombstones


@pytest.mark.looptime
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_delete_that_fails_is_rolled_back_and_the_watch_tells_the_rest(when: str) -> None:
    async with a_world() as world:
        made = await put(world.writes, "a")

        async def fail(verb: str, plural: str) -> None:
            if verb == "delete":
                raise Unreachable("the connection broke")

        setattr(world.api, when, fail)
        with pytest.raises(Unreachable):
            await world.writes.delete(CONFIG_MAPS, "a", "default")
        assert world.cache.get(A) is made
        assert not world.cache.leaving(made)
        await world.settle()
        assert len(world.cache) == (1 if when == "before" else 0)


@pytest.mark.looptime
async def test_a_cancelled_delete_is_rolled_back() -> None:
    async with a_world() as world:
        made = await put(world.writes, "a")

        async def hang(verb: str, plural: str) -> None:
            await asyncio.Event().wait()

        world.api.before = hang
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await world.writes.delete(CONFIG_MAPS, "a", "default")
        assert not world.cache.leaving(made)


@pytest.mark.looptime
async def test_not_found_means_gone_and_conflict_means_nothing_happened() -> None:
    async with a_world() as world:
        made = await put(world.writes, "a")
        with pytest.raises(Conflict):
            await world.writes.delete(
                CONFIG_MAPS, "a", "default", preconditions=Preconditions(made.metadata.uid, Revision(1))
            )
        assert world.cache.get(A) is made
        assert not world.cache.leaving(made)
        await world.api.delete(CONFIG_MAPS, "a", "default")  # past the wrapper; the watch has not told us yet
        assert world.cache.get(A) is made
        with pytest.raises(NotFound):
            await world.writes.delete(CONFIG_MAPS, "a", "default")
        assert world.cache.get(A) is None
        await world.settle()
        assert not world.cache.tombstones
