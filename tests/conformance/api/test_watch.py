"""Watches: every change once and in order, from a revision or from the present state, selected, and ended cleanly."""

from __future__ import annotations

import asyncio

import pytest

from conformance.api.stream import PATIENCE, initial, rest, said, take
from conformance.bodies import core, metadata, pod, sandbox
from sandpool.kube.api import Api, EventType
from sandpool.kube.errors import BadRequest, Gone
from sandpool.model.kinds import CONFIG_MAPS, PODS, SANDBOXES
from sandpool.model.metadata import Revision
from sandpool.model.patches import merge_patch
from support.api.implementations import Implementation


async def test_changes_since_a_list(api: Api, ns: str) -> None:
    """A list, then a watch from its revision: together they miss nothing and repeat nothing."""
    await api.create(SANDBOXES, sandbox("before"), ns)
    page = await api.list(SANDBOXES, ns)
    made = await api.create(SANDBOXES, sandbox("s"), ns)
    changed = await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"labels": {"a": "b"}}}), ns)
    await api.delete(SANDBOXES, "s", ns)
    async with api.watch(SANDBOXES, ns, since=page.revision) as events:
        seen = await take(events, 3)
        await api.create(SANDBOXES, sandbox("later"), ns)
        seen += await take(events, 1)
    assert said(seen) == [("ADDED", "s"), ("MODIFIED", "s"), ("DELETED", "s"), ("ADDED", "later")]
    assert (seen[0].object, seen[1].object) == (made, changed)
    assert [event.revision for event in seen] == sorted({event.revision for event in seen})
    last = seen[2].object
    assert last is not None
    assert (last.metadata.uid, last.metadata.labels) == (made.metadata.uid, {"a": "b"})
    assert last.metadata.revision == seen[2].revision > changed.metadata.revision


async def test_every_change_once_and_in_order(api: Api, ns: str) -> None:
    page = await api.list(SANDBOXES, ns)

    async def life(name: str) -> None:
        await api.create(SANDBOXES, sandbox(name), ns)
        for i in range(4):
            await api.patch_status(SANDBOXES, name, merge_patch({"status": {"nodeName": f"n{i}"}}), ns)
        await api.delete(SANDBOXES, name, ns)

    async with api.watch(SANDBOXES, ns, since=page.revision) as events:
        _, seen = await asyncio.gather(asyncio.gather(*(life(f"s{i}") for i in range(8))), take(events, 8 * 6))
    assert [event.revision for event in seen] == sorted({event.revision for event in seen})
    for i in range(8):
        story = [event for event in seen if event.object is not None and event.object.metadata.name == f"s{i}"]
        assert [event.type.value for event in story] == ["ADDED", *["MODIFIED"] * 4, "DELETED"]
        assert [e.object.status.node_name for e in story[1:5] if e.object is not None] == ["n0", "n1", "n2", "n3"]


async def test_two_watchers_see_the_same(api: Api, ns: str) -> None:
    since = (await api.list(SANDBOXES, ns)).revision
    async with api.watch(SANDBOXES, ns, since=since) as one, api.watch(SANDBOXES, ns, since=since) as other:
        for i in range(5):
            await api.create(SANDBOXES, sandbox(f"s{i}"), ns)
        assert await take(one, 5) == await take(other, 5)


async def test_namespaces_and_kinds_are_apart(api: Api, ns: str) -> None:
    since = (await api.list(SANDBOXES, ns)).revision
    async with api.watch(SANDBOXES, ns, since=since) as here, api.watch(SANDBOXES, since=since) as everywhere:
        await api.create(CONFIG_MAPS, core("ConfigMap", "s"), ns)
        await api.create(SANDBOXES, sandbox("mine"), ns)
        assert said(await take(here, 1)) == [("ADDED", "mine")]
        async with asyncio.timeout(PATIENCE):
            async for event in everywhere:
                if event.object is not None and event.object.metadata.namespace == ns:
                    assert said([event]) == [("ADDED", "mine")]
                    break


async def test_streaming_list(api: Api, ns: str) -> None:
    for name in ("b", "a", "c"):
        await api.create(SANDBOXES, sandbox(name), ns)
    await api.delete(SANDBOXES, "c", ns)
    page = await api.list(SANDBOXES, ns)
    async with api.watch(SANDBOXES, ns, initial=True) as events:
        first, done = await initial(events)
        assert sorted(said(first)) == [("ADDED", "a"), ("ADDED", "b")]
        assert {event.object.metadata.name: event.object for event in first if event.object is not None} == {
            item.metadata.name: item for item in page.items
        }
        assert (done.type, done.object) == (EventType.BOOKMARK, None)
        assert done.revision >= page.revision
        await api.create(SANDBOXES, sandbox("d"), ns)
        assert said(await take(events, 1)) == [("ADDED", "d")]


async def test_streaming_list_of_nothing(api: Api, ns: str) -> None:
    made = await api.create(CONFIG_MAPS, core("ConfigMap", "c"), ns)
    async with api.watch(SANDBOXES, ns, initial=True) as events:
        first, done = await initial(events)
        assert first == []
        assert done.revision > 0
    async with api.watch(CONFIG_MAPS, ns, initial=True, labels="!absent", fields="metadata.name=c") as configs:
        given, reached = await initial(configs)
        assert [event.object for event in given] == [made]
        assert reached.revision >= made.metadata.revision


async def test_label_transitions(api: Api, ns: str) -> None:
    """Whoever watches a selection sees an object come and go as it begins and ceases to match."""
    since = (await api.list(SANDBOXES, ns)).revision
    async with api.watch(SANDBOXES, ns, labels="app=x", since=since) as events:
        await api.create(SANDBOXES, sandbox("s"), ns)
        await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"labels": {"app": "x"}}}), ns)
        await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"labels": {"more": "y"}}}), ns)
        left = await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"labels": {"app": None}}}), ns)
        await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"labels": {"more": "z"}}}), ns)
        await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"labels": {"app": "x"}}}), ns)
        await api.delete(SANDBOXES, "s", ns)
        seen = await take(events, 5)
    assert said(seen) == [("ADDED", "s"), ("MODIFIED", "s"), ("DELETED", "s"), ("ADDED", "s"), ("DELETED", "s")]
    # What ceased to match is shown as it last matched, with the revision of the change that ended it.
    ceased = seen[2].object
    assert ceased is not None
    assert ceased.metadata.labels == {"app": "x", "more": "y"}
    assert ceased.metadata.revision == left.metadata.revision


async def test_field_transitions(api: Api, ns: str) -> None:
    since = (await api.list(PODS, ns)).revision
    async with api.watch(PODS, ns, fields="status.phase=Running", since=since) as events:
        await api.create(PODS, pod("p"), ns)
        await api.patch_status(PODS, "p", merge_patch({"status": {"phase": "Running"}}), ns)
        await api.patch_status(PODS, "p", merge_patch({"status": {"phase": "Failed"}}), ns)
        assert said(await take(events, 2)) == [("ADDED", "p"), ("DELETED", "p")]


async def test_one_object_by_name(api: Api, ns: str) -> None:
    since = (await api.list(SANDBOXES, ns)).revision
    async with api.watch(SANDBOXES, ns, fields="metadata.name=b", since=since) as events:
        for name in ("a", "b", "c"):
            await api.create(SANDBOXES, sandbox(name), ns)
        await api.delete(SANDBOXES, "b", ns)
        assert said(await take(events, 2)) == [("ADDED", "b"), ("DELETED", "b")]


async def test_bad_selectors(api: Api, ns: str) -> None:
    for labels, fields in (("a b", ""), ("", "spec.operatingMode=Running")):
        with pytest.raises(BadRequest):
            async with api.watch(SANDBOXES, ns, since=Revision(1), labels=labels, fields=fields) as events:
                await take(events, 1)


async def test_timeout_ends_a_watch_cleanly(api: Api, ns: str) -> None:
    since = (await api.list(SANDBOXES, ns)).revision
    async with api.watch(SANDBOXES, ns, since=since, timeout=1) as events:
        made = await api.create(SANDBOXES, sandbox("s"), ns)
        seen = [event for event in await rest(events) if event.type is not EventType.BOOKMARK]
    assert [event.object for event in seen] == [made]


async def test_bookmarks_move_an_idle_watcher_on(api: Api, ns: str) -> None:
    """Nothing happens in the selection, but the rest of the world moves; a bookmark says how far."""
    since = (await api.list(SANDBOXES, ns)).revision
    async with api.watch(SANDBOXES, ns, labels="nobody=has-this", since=since, timeout=3) as events:
        other = await api.create(SANDBOXES, sandbox("other"), ns)
        bookmarks = await rest(events)
    assert {event.type for event in bookmarks} == {EventType.BOOKMARK}
    assert all(event.object is None and not event.initial_done for event in bookmarks)
    assert bookmarks[-1].revision >= other.metadata.revision
    async with api.watch(SANDBOXES, ns, since=bookmarks[-1].revision) as resumed:
        await api.create(SANDBOXES, sandbox("late"), ns)
        assert said(await take(resumed, 1)) == [("ADDED", "late")]


async def test_from_a_revision_that_is_compacted(cluster: Implementation, api: Api, ns: str) -> None:
    if cluster.compact is None:
        pytest.skip("this server cannot be asked to forget")
    old = (await api.create(SANDBOXES, sandbox("old"), ns)).metadata.revision
    await api.create(SANDBOXES, sandbox("s"), ns)
    since = Revision(1) if cluster.name == "kube" else old  # its watch cache still remembers what etcd forgot
    await cluster.compact()
    with pytest.raises(Gone) as caught:
        async with api.watch(SANDBOXES, ns, since=since) as events:
            await take(events, 1)
    assert caught.value.code == 410
    assert caught.value.word in ("Expired", "Gone")
    page = await api.list(SANDBOXES, ns)  # what one does then
    assert [item.metadata.name for item in page.items] == ["old", "s"]
    async with api.watch(SANDBOXES, ns, since=page.revision) as events:
        await api.delete(SANDBOXES, "s", ns)
        assert said(await take(events, 1)) == [("DELETED", "s")]


async def test_without_a_revision_the_present_state_comes_first(api: Api, ns: str) -> None:
    made = [await api.create(SANDBOXES, sandbox(name), ns) for name in ("a", "b")]
    async with api.watch(SANDBOXES, ns) as events:
        first = await take(events, 2)
        assert sorted(said(first)) == [("ADDED", "a"), ("ADDED", "b")]
        assert sorted((event.object for event in first if event.object), key=lambda o: o.metadata.name) == made
        await api.delete(SANDBOXES, "a", ns)
        assert said(await take(events, 1)) == [("DELETED", "a")]


async def test_a_watcher_that_falls_too_far_behind_is_told(cluster: Implementation, api: Api, ns: str) -> None:
    if cluster.compact is None or cluster.name not in ("memory", "sqlite"):
        pytest.skip("over a wire it depends on buffers when a watcher is behind")
    async with api.watch(SANDBOXES, ns, since=(await api.list(SANDBOXES, ns)).revision) as events:
        await api.create(SANDBOXES, sandbox("s"), ns)
        await cluster.compact()
        with pytest.raises(Gone):
            await take(events, 2)


async def test_created_anew_is_seen_as_another(api: Api, ns: str) -> None:
    since = (await api.list(SANDBOXES, ns)).revision
    async with api.watch(SANDBOXES, ns, since=since) as events:
        for _ in range(2):
            await api.create(SANDBOXES, sandbox("s"), ns)
            await api.delete(SANDBOXES, "s", ns)
        seen = await take(events, 4)
    assert [event.type.value for event in seen] == ["ADDED", "DELETED", "ADDED", "DELETED"]
    uids = [event.object.metadata.uid for event in seen if event.object is not None]
    assert uids[0] == uids[1] != uids[2] == uids[3]


async def test_writes_without_a_difference_are_silent(api: Api, ns: str) -> None:
    made = await api.create(SANDBOXES, sandbox(metadata=metadata("s", labels={"a": "b"})), ns)
    async with api.watch(SANDBOXES, ns, since=made.metadata.revision) as events:
        await api.patch(SANDBOXES, "s", merge_patch({"metadata": {"labels": {"a": "b"}}}), ns)
        await api.patch_status(SANDBOXES, "s", merge_patch({"spec": {"service": True}}), ns)
        await api.delete(SANDBOXES, "s", ns)
        assert said(await take(events, 1)) == [("DELETED", "s")]


async def test_leaving_a_watch_early_is_fine(api: Api, ns: str) -> None:
    for _ in range(5):
        async with api.watch(SANDBOXES, ns, initial=True) as events:
            await initial(events)
    await api.create(SANDBOXES, sandbox("s"), ns)
    assert len((await api.list(SANDBOXES, ns)).items) == 1
