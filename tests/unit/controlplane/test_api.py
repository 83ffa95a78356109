"""The in-process Api: typed objects, one decode per record, watches that end as they should."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.kube.api import Batched, Event, EventType, Preconditions, Propagation
from sandpool.kube.errors import Conflict, Gone, Invalid, NotFound, Unavailable
from sandpool.model import kinds
from sandpool.model.core import ConfigMap
from sandpool.model.metadata import Metadata, Revision, Uid
from sandpool.model.patches import json_patch, merge_patch
from support.api.local_objects import START, Bench, bench, claim, config_map


@pytest.fixture
def api(b: Bench) -> LocalApi:
    return LocalApi(b.objects)


async def test_verbs(api: LocalApi) -> None:
    made = await api.create(kinds.CLAIMS, claim(), "default")
    assert made.spec.warm_pool_ref.name == "pool"
    assert made.metadata.creation_timestamp == START
    assert await api.get(kinds.CLAIMS, "x", "default") == made
    labelled = await api.patch(kinds.CLAIMS, "x", merge_patch({"metadata": {"labels": {"a": "b"}}}), "default")
    assert labelled.metadata.labels == {"a": "b"}
    bound = await api.patch_status(kinds.CLAIMS, "x", merge_patch({"status": {"sandbox": {"name": "s"}}}), "default")
    assert bound.status is not None
    page = await api.list(kinds.CLAIMS, "default", labels="a=b")
    assert (page.items, page.after) == ((bound,), "")
    assert await api.delete(kinds.CLAIMS, "x", "default") is None
    with pytest.raises(NotFound):
        await api.get(kinds.CLAIMS, "x", "default")


async def test_typed_bodies(api: LocalApi) -> None:
    body = ConfigMap(metadata=Metadata(name="c", labels={"a": "b"}), data={"x": "y"})
    made = await api.create(kinds.CONFIG_MAPS, body, "default")
    assert (made.data, made.metadata.labels) == ({"x": "y"}, {"a": "b"})


async def test_delete_that_leaves_a_finalizer(api: LocalApi) -> None:
    made = await api.create(kinds.CLAIMS, claim(finalizers=["a.b/c"]), "default")
    marked = await api.delete(kinds.CLAIMS, "x", "default", preconditions=Preconditions(made.metadata.uid))
    assert marked is not None
    assert marked.metadata.leaving
    with pytest.raises(Conflict):
        await api.delete(kinds.CLAIMS, "x", "default", preconditions=Preconditions(Uid("other")))
    gone = await api.patch(kinds.CLAIMS, "x", merge_patch({"metadata": {"finalizers": None}}), "default")
    assert gone.metadata.finalizers == ()
    assert gone.metadata.revision == marked.metadata.revision


async def test_propagation_reaches_the_object(api: LocalApi) -> None:
    await api.create(kinds.CLAIMS, claim(), "default")
    marked = await api.delete(kinds.CLAIMS, "x", "default", propagation=Propagation.FOREGROUND)
    assert marked is not None
    assert marked.metadata.finalizers == ("foregroundDeletion",)


async def test_pages(api: LocalApi) -> None:
    for index in range(5):
        await api.create(kinds.CONFIG_MAPS, config_map(f"c{index}"), "default")
    names: list[str] = []
    after = ""
    remaining = []
    while True:
        page = await api.list(kinds.CONFIG_MAPS, "default", limit=2, after=after)
        names += [item.metadata.name for item in page.items]
        remaining.append(page.remaining)
        after = page.after
        if not after:
            break
    assert (names, remaining) == ([f"c{index}" for index in range(5)], [3, 1, None])


async def test_a_record_is_decoded_once(api: LocalApi) -> None:
    async with api.watch(kinds.CLAIMS, "default") as events:
        made = await api.create(kinds.CLAIMS, claim(), "default")
        event = await anext(events)
        assert event.object is made
        assert await api.get(kinds.CLAIMS, "x", "default") is made


async def test_watch(api: LocalApi) -> None:
    await api.create(kinds.CONFIG_MAPS, config_map("a"), "default")
    async with api.watch(kinds.CONFIG_MAPS, "default", initial=True) as events:
        first, mark = await anext(events), await anext(events)
        assert (first.type, first.object and first.object.metadata.name) == (EventType.ADDED, "a")
        assert (mark.type, mark.object, mark.initial_done) == (EventType.BOOKMARK, None, True)
        await api.create(kinds.CONFIG_MAPS, config_map("b"), "default")
        await api.delete(kinds.CONFIG_MAPS, "b", "default")
        seen: list[Event[ConfigMap]] = [await anext(events), await anext(events)]
        assert [event.type for event in seen] == [EventType.ADDED, EventType.DELETED]
        since = seen[0].revision
    async with api.watch(kinds.CONFIG_MAPS, "default", since=since) as events:
        assert (await anext(events)).type is EventType.DELETED


@pytest.mark.looptime
async def test_watch_ends_at_its_timeout_with_a_bookmark(api: LocalApi) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with api.watch(kinds.CONFIG_MAPS, since=Revision(1), timeout=150) as events:
        seen = [(event.type, loop.time() - began) async for event in events]
    assert seen == [(EventType.BOOKMARK, 60), (EventType.BOOKMARK, 120), (EventType.BOOKMARK, 150)]


@pytest.mark.looptime
async def test_bookmarks_say_how_far_the_watcher_is(api: LocalApi, b: Bench) -> None:
    async with api.watch(kinds.CONFIG_MAPS, "default", since=b.store.revision) as events:
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(1)
        await api.create(kinds.CLAIMS, claim(), "default")
        mark = await waiting
        assert (mark.type, mark.revision) == (EventType.BOOKMARK, b.store.revision)


async def test_two_ticks_before_the_watcher_runs_are_one(api: LocalApi, b: Bench) -> None:
    """A bookmark is due and so is the end, or the loop was held up for long."""
    watch: Any = api.watch(kinds.CONFIG_MAPS, "default", since=b.store.revision)
    async with watch as events:
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        watch.tick(False)
        await asyncio.sleep(0)  # the wait is told to end, and has not run yet
        watch.timer.cancel()
        watch.tick(False)
        assert (await waiting).type is EventType.BOOKMARK


async def test_gone() -> None:
    async with bench(HistoryLimits(changes=8)) as b:
        api = LocalApi(b.objects)
        first = b.store.revision
        await api.create(kinds.CONFIG_MAPS, config_map("a"), "default")
        async with api.watch(kinds.CONFIG_MAPS, since=b.store.revision) as slow:
            for turn in range(20):
                await api.patch(kinds.CONFIG_MAPS, "a", merge_patch({"data": {"turn": str(turn)}}), "default")
            with pytest.raises(Gone):
                await anext(slow)
        with pytest.raises(Gone):
            async with api.watch(kinds.CONFIG_MAPS, since=first):
                pass


async def test_a_closed_store_is_unavailable() -> None:
    async with bench() as b:
        api = LocalApi(b.objects)
        await api.create(kinds.CONFIG_MAPS, config_map("a"), "default")
        async with api.watch(kinds.CONFIG_MAPS, since=b.store.revision) as events:
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            await b.store.close()
            with pytest.raises(Unavailable):
                await waiting
        with pytest.raises(Unavailable):
            await api.create(kinds.CONFIG_MAPS, config_map("b"), "default")


async def test_a_writer_that_goes_away_does_not_undo_its_write(api: LocalApi, b: Bench) -> None:
    made = await api.create(kinds.CLAIMS, claim(finalizers=["a.b/c"]), "default")
    for patch in (merge_patch({"metadata": {"labels": {"a": "b"}}}), merge_patch({"metadata": {"labels": {"c": "d"}}})):
        writing = asyncio.create_task(api.patch(kinds.CLAIMS, "x", patch, "default"))
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
    found = await api.get(kinds.CLAIMS, "x", "default")
    assert found.metadata.labels == {"a": "b", "c": "d"}
    assert found.metadata.uid == made.metadata.uid


async def test_failed_test_has_no_causes(api: LocalApi) -> None:
    await api.create(kinds.CLAIMS, claim(), "default")
    with pytest.raises(Invalid) as caught:
        await api.patch(
            kinds.CLAIMS, "x", json_patch([{"op": "test", "path": "/metadata/uid", "value": "u"}]), "default"
        )
    assert caught.value.causes == ()


async def test_time_is_the_clocks(api: LocalApi, b: Bench) -> None:
    b.advance(90)
    made = await api.create(kinds.CLAIMS, claim(), "default")
    assert made.metadata.creation_timestamp == START + timedelta(seconds=90)


async def test_a_batch_is_all_that_has_come(api: LocalApi, b: Bench) -> None:
    async with api.watch(kinds.CONFIG_MAPS, "default", since=b.store.revision, timeout=0.2) as events:
        assert isinstance(events, Batched)
        for name in "abc":
            await api.create(kinds.CONFIG_MAPS, config_map(name), "default")
        first = await anext(events)
        await api.create(kinds.CONFIG_MAPS, config_map("d"), "default")
        rest = [await anext(events), await anext(events)]
        batch = await events.batch()
        found = [event.object.metadata.name for event in (first, *rest, *batch) if event.object]
        assert found == ["a", "b", "c", "d"]
        assert [event.type for event in await events.batch()] == [EventType.BOOKMARK]
        assert await events.batch() == ()
        assert [event async for event in events] == []
