"""Watches: starting points, selectors, bookmarks, bytes that are shared, and falling behind."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandpool.controlplane.objects.objects import RawWatch
from sandpool.controlplane.objects.options import WatchQuery
from sandpool.controlplane.objects.watching import RawEvent
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.kube.api import EventType
from sandpool.kube.errors import Gone, ServerTimeout
from sandpool.model import kinds
from sandpool.model.metadata import Revision
from support.api.local_objects import Bench, bench, config_map


def told(events: list[RawEvent]) -> list[tuple[str, str]]:
    return [(str(event.type), msgspec.json.decode(event.value)["metadata"].get("name", "")) for event in events]


def watch(b: Bench, **query: object) -> RawWatch:
    return b.objects.watch(kinds.CONFIG_MAPS, "default", WatchQuery(**query))  # type: ignore[arg-type]


async def some(watching: RawWatch, count: int) -> list[RawEvent]:
    events: list[RawEvent] = []
    while len(events) < count:
        async with asyncio.timeout(5):
            events += await watching.next()
    return events


async def test_from_a_revision(b: Bench) -> None:
    await b.create(kinds.CONFIG_MAPS, config_map("before"))
    watching = watch(b, since=b.store.revision)
    await b.create(kinds.CONFIG_MAPS, config_map("a"))
    await b.patch(kinds.CONFIG_MAPS, "a", {"data": {"x": "y"}})
    await b.delete(kinds.CONFIG_MAPS, "a")
    events = await some(watching, 3)
    assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert [event.revision for event in events] == sorted(event.revision for event in events)
    last = msgspec.json.decode(events[-1].value)
    assert last["metadata"]["resourceVersion"] == str(events[-1].revision) == str(b.store.revision)
    watching.close()


async def test_from_nothing_begins_with_what_is_there(b: Bench) -> None:
    await b.create(kinds.CONFIG_MAPS, config_map("a"))
    for since in (None, Revision(0)):
        watching = watch(b, since=since)
        assert told(await some(watching, 1)) == [("ADDED", "a")]
        watching.close()
    quiet = watch(b, skip_initial=True)
    await b.create(kinds.CONFIG_MAPS, config_map("b"))
    assert told(await some(quiet, 1)) == [("ADDED", "b")]
    quiet.close()


async def test_initial_events_end_with_a_bookmark(b: Bench) -> None:
    await b.create(kinds.CONFIG_MAPS, config_map("a"))
    watching = watch(b, initial=True, bookmarks=True)
    events = await some(watching, 2)
    assert told(events) == [("ADDED", "a"), ("BOOKMARK", "")]
    mark = msgspec.json.decode(events[1].value)
    assert mark == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "resourceVersion": str(b.store.revision),
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
    }
    assert events[1].initial_done
    await b.create(kinds.CONFIG_MAPS, config_map("b"))
    assert told(await some(watching, 1)) == [("ADDED", "b")]
    watching.close()
    unmarked = watch(b, initial=True)
    assert told(await some(unmarked, 2)) == [("ADDED", "a"), ("ADDED", "b")]
    unmarked.close()


async def test_only_its_namespace_and_kind(b: Bench) -> None:
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "other"}})
    watching = watch(b, since=b.store.revision)
    everywhere = b.objects.watch(kinds.CONFIG_MAPS, "", WatchQuery(since=b.store.revision))
    await b.create(kinds.CONFIG_MAPS, config_map("a"), namespace="other")
    await b.create(kinds.SECRETS, {"metadata": {"name": "s"}})
    await b.create(kinds.CONFIG_MAPS, config_map("b"))
    assert told(await some(watching, 1)) == [("ADDED", "b")]
    assert told(await some(everywhere, 2)) == [("ADDED", "a"), ("ADDED", "b")]
    watching.close()
    everywhere.close()


async def test_selector_transitions(b: Bench) -> None:
    await b.create(kinds.CONFIG_MAPS, config_map("a", labels={"n": "0"}))
    watching = watch(b, since=b.store.revision, labels="n=1")
    await b.patch(kinds.CONFIG_MAPS, "a", {"data": {"unseen": "1"}})
    await b.patch(kinds.CONFIG_MAPS, "a", {"metadata": {"labels": {"n": "1"}}})
    await b.patch(kinds.CONFIG_MAPS, "a", {"data": {"seen": "1"}})
    left = await b.patch(kinds.CONFIG_MAPS, "a", {"metadata": {"labels": {"n": "2"}}})
    await b.patch(kinds.CONFIG_MAPS, "a", {"data": {"unseen": "2"}})
    await b.patch(kinds.CONFIG_MAPS, "a", {"metadata": {"labels": {"n": "1"}}})
    await b.delete(kinds.CONFIG_MAPS, "a")
    events = await some(watching, 5)
    assert told(events) == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("ADDED", "a"),
        ("DELETED", "a"),
    ]
    departed = msgspec.json.decode(events[2].value)["metadata"]
    assert departed["labels"] == {"n": "1"}, "as it was when it still matched"
    assert departed["resourceVersion"] == left["metadata"]["resourceVersion"], "at the revision of the change"
    watching.close()


async def test_field_selector(b: Bench) -> None:
    watching = watch(b, since=b.store.revision, fields="metadata.name=b")
    await b.create(kinds.CONFIG_MAPS, config_map("a"))
    await b.create(kinds.CONFIG_MAPS, config_map("b"))
    assert told(await some(watching, 1)) == [("ADDED", "b")]
    watching.close()


async def test_all_watchers_share_the_stored_bytes(b: Bench) -> None:
    watchers = [watch(b, since=b.store.revision, labels=labels) for labels in ("", "", "n", "n=1")]
    await b.create(kinds.CONFIG_MAPS, config_map("a", labels={"n": "1"}))
    events = [(await some(watching, 1))[0] for watching in watchers]
    stored = b.objects.get(kinds.CONFIG_MAPS, "default", "a").value
    assert all(event.value is stored for event in events)
    for watching in watchers:
        watching.close()


async def test_bookmark_covers_changes_elsewhere(b: Bench) -> None:
    watching = watch(b, since=b.store.revision)
    waiting = asyncio.create_task(watching.next())
    await asyncio.sleep(0)
    await b.create(kinds.SECRETS, {"metadata": {"name": "s"}})
    mark = watching.bookmark()
    assert (mark.type, mark.revision) == (EventType.BOOKMARK, b.store.revision)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    watching.close()


async def test_bookmark_never_skips_an_event(b: Bench) -> None:
    watching = watch(b, since=b.store.revision)
    before = b.store.revision
    await b.create(kinds.CONFIG_MAPS, config_map("a"))
    assert watching.bookmark().revision == before
    assert told(await some(watching, 1)) == [("ADDED", "a")]
    assert watching.bookmark().revision == b.store.revision
    watching.close()


async def test_a_cancelled_wait_loses_nothing(b: Bench) -> None:
    watching = watch(b, since=b.store.revision)
    events: list[RawEvent] = []
    for name in "abcdef":
        waiting = asyncio.create_task(watching.next())
        await asyncio.sleep(0)
        writing = asyncio.create_task(b.create(kinds.CONFIG_MAPS, config_map(name)))
        for _ in range("abcdef".index(name) + 1):  # cancelled a little later each time, also just as an event arrives
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting, writing])
        if not waiting.cancelled():
            events += waiting.result()
    events += await some(watching, 6 - len(events))
    assert told(events) == [("ADDED", name) for name in "abcdef"]
    watching.close()


async def test_too_old() -> None:
    async with bench(HistoryLimits(changes=8)) as b:
        first = b.store.revision
        slow = watch(b, since=first)
        await b.create(kinds.CONFIG_MAPS, config_map("a"))
        for turn in range(20):
            await b.patch(kinds.CONFIG_MAPS, "a", {"data": {"turn": str(turn)}})
        with pytest.raises(Gone, match=rf"^too old resource version: {first} \(\d+\)$") as caught:
            watch(b, since=first)
        assert (caught.value.code, caught.value.word) == (410, "Expired")
        with pytest.raises(Gone, match=r"^too old resource version"):
            await slow.next()
        slow.close()


async def test_from_the_future(b: Bench) -> None:
    """A plain watch waits in silence until the revision has passed; a streaming list cannot be served."""
    future = Revision(b.store.revision + 1)
    watching = watch(b, since=future)
    await b.create(kinds.CONFIG_MAPS, config_map("not yet"[:3]))
    await b.create(kinds.CONFIG_MAPS, config_map("b"))
    assert told(await some(watching, 1)) == [("ADDED", "b")]
    watching.close()
    with pytest.raises(ServerTimeout, match=r"Too large resource version"):
        watch(b, since=Revision(b.store.revision + 10), initial=True)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["set0", "set1", "delete"])), min_size=1, max_size=25),
    st.integers(0, 25),
)
async def test_a_watcher_sees_what_a_list_shows(steps: list[tuple[str, str]], start: int) -> None:
    """Replaying events over a snapshot gives the list at the end, whatever the selector and wherever it starts."""
    async with bench() as b:
        watching: RawWatch | None = None
        world: set[str] = set()
        for index, (name, step) in enumerate([*steps, ("z", "set1")]):
            if index >= start and watching is None:
                world = set(b.names_of(kinds.CONFIG_MAPS, labels="n=1"))
                watching = watch(b, since=b.store.revision, labels="n=1")
            await _step(b, name, step)
        if watching is None:
            return
        while "z" not in world:
            for event in await watching.next():
                name = msgspec.json.decode(event.value)["metadata"]["name"]
                if event.type is EventType.DELETED:
                    assert name in world
                    world.remove(name)
                else:
                    assert (name in world) is (event.type is EventType.MODIFIED)
                    world.add(name)
        assert world == set(b.names_of(kinds.CONFIG_MAPS, labels="n=1"))
        watching.close()


async def _step(b: Bench, name: str, step: str) -> None:
    absent = b.absent(kinds.CONFIG_MAPS, name)
    if step == "delete":
        if not absent:
            await b.delete(kinds.CONFIG_MAPS, name)
    elif absent:
        await b.create(kinds.CONFIG_MAPS, config_map(name, labels={"n": step[-1]}))
    else:
        await b.patch(kinds.CONFIG_MAPS, name, {"metadata": {"labels": {"n": step[-1]}}})
