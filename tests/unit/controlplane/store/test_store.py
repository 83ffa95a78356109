"""The store over a log that commits on demand: what is decided, what is durable, what fails."""

from __future__ import annotations

import asyncio

import pytest

from sandpool.controlplane.store.errors import Ahead, StoreClosed, StoreFailed
from sandpool.controlplane.store.log import Commit, MemoryLog
from sandpool.controlplane.store.port import Store as Port
from sandpool.controlplane.store.record import Compacted, Record, Stale
from sandpool.controlplane.store.store import NullObserver, Store
from sandpool.model.metadata import NO_REVISION, Revision
from support.storage.logs import HeldLog

KEY = "core/pods/default/one"


def encode(revision: Revision) -> bytes:
    return b"at %d" % revision


async def a_held_store() -> tuple[Store, HeldLog]:
    log = HeldLog()
    return await Store.open(log), log


async def test_a_write_is_decided_at_once_and_seen_when_durable() -> None:
    store, log = await a_held_store()
    port: Port = store
    first = port.put(KEY, NO_REVISION, encode)
    second = port.put(KEY, Revision(1), encode)  # follows the first without waiting for it
    newest = port.newest(KEY)
    assert newest is not None
    assert (newest.revision, newest.created, newest.value) == (2, 1, b"at 2")
    assert port.get(KEY) is None
    assert port.scan("").records == ()
    assert port.revision == 0
    log.commit(1)
    assert (port.revision, (await first).value) == (1, b"at 1")
    assert not second.done()
    log.commit(1)
    assert (await second) == port.get(KEY) == newest


async def test_stale_writes_are_refused_with_what_is_there() -> None:
    store, log = await a_held_store()
    store.put(KEY, NO_REVISION, encode)
    for expected in (NO_REVISION, Revision(7)):
        with pytest.raises(Stale) as caught:
            store.put(KEY, expected, encode)
        assert caught.value.newest == store.newest(KEY)
    with pytest.raises(Stale):
        store.delete("core/pods/default/absent", NO_REVISION, encode)
    assert len(log.held) == 1
    log.commit(1)


async def test_an_encoder_that_fails_leaves_no_trace() -> None:
    store, log = await a_held_store()

    def broken(revision: Revision) -> bytes:
        raise RuntimeError("cannot encode")

    with pytest.raises(RuntimeError):
        store.put(KEY, NO_REVISION, broken)
    assert store.newest(KEY) is None
    assert not log.held
    future = store.put(KEY, NO_REVISION, encode)
    log.commit(1)
    assert (await future).revision == 1


async def test_deleted_and_created_again_is_another_incarnation() -> None:
    store = await Store.open(MemoryLog())
    await store.put(KEY, NO_REVISION, encode)
    watcher = store.watch("core/pods/", Revision(1))
    gone = await store.delete(KEY, Revision(1), encode)
    assert (gone.revision, gone.created, store.get(KEY)) == (2, 1, None)
    again = await store.put(KEY, NO_REVISION, encode)
    assert (again.revision, again.created) == (3, 3)
    deleted, created = await watcher.changes()
    assert deleted.deleted
    assert deleted.previous is not None
    assert (deleted.previous.revision, deleted.record.value) == (1, b"at 2")
    assert (created.deleted, created.previous) == (False, None)
    await store.close()


async def test_a_failed_commit_fails_all_that_followed_and_newest_falls_back() -> None:
    store, log = await a_held_store()
    kept = store.put(KEY, NO_REVISION, encode)
    log.commit(1)
    lost = [store.put(KEY, Revision(1), encode), store.put("core/pods/default/two", NO_REVISION, encode)]
    waiting = asyncio.create_task(store.durable(Revision(2)))
    await asyncio.sleep(0)
    log.fail()
    for future in (*lost, waiting):
        with pytest.raises(StoreFailed):
            await future  # type: ignore[misc]
    assert store.newest(KEY) == store.get(KEY) == await kept
    assert store.newest("core/pods/default/two") is None
    later = store.put(KEY, Revision(1), encode)
    log.commit(1)
    assert (await later).revision == 4  # 2 and 3 are never given again
    await store.durable(Revision(4))
    with pytest.raises(StoreFailed):  # also once newer revisions are durable
        await store.durable(Revision(3))


async def test_what_is_being_decided_about_a_key_is_known_until_it_is_durable() -> None:
    store, log = await a_held_store()
    assert store.deciding(KEY) == NO_REVISION
    made = store.put(KEY, NO_REVISION, encode)
    assert store.deciding(KEY) == 1
    log.commit(1)
    assert store.deciding(KEY) == NO_REVISION
    leaving = store.delete(KEY, (await made).revision, encode)
    assert store.newest(KEY) is None
    assert store.deciding(KEY) == 2
    log.fail()
    with pytest.raises(StoreFailed):
        await leaving
    assert store.deciding(KEY) == NO_REVISION
    assert store.newest(KEY) is not None


async def test_durable_waits_for_exactly_its_revision() -> None:
    store, log = await a_held_store()
    for expected in range(3):
        store.put(KEY, Revision(expected), encode)
    waiting = [asyncio.create_task(store.durable(Revision(revision))) for revision in (1, 2, 3)]
    await asyncio.sleep(0)
    log.commit(2)
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, True, False]
    log.commit(1)
    await asyncio.gather(*waiting)
    with pytest.raises(ValueError, match="never given"):
        await store.durable(Revision(9))


async def test_a_cancelled_writer_loses_only_its_answer() -> None:
    store, log = await a_held_store()

    async def write() -> Record:
        return await store.put(KEY, NO_REVISION, encode)

    task = asyncio.create_task(write())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    log.commit(1)
    record = store.get(KEY)
    assert record is not None
    assert record.revision == 1


async def test_a_batch_is_seen_whole() -> None:
    store, log = await a_held_store()
    futures = [store.put(f"core/pods/default/{name}", NO_REVISION, encode) for name in "abc"]
    watcher = store.watch("core/pods/", NO_REVISION)
    seen: list[int] = []
    futures[0].add_done_callback(lambda _: seen.append(store.count("core/pods/")))
    log.commit(3)
    assert [c.record.revision for c in await watcher.changes()] == [1, 2, 3]
    await asyncio.gather(*futures)
    assert seen == [3]


async def test_snapshots_of_the_past_and_their_pages() -> None:
    store = await Store.open(MemoryLog())
    for name in "abcde":
        await store.put(f"core/pods/one/{name}", NO_REVISION, encode)
    await store.delete("core/pods/one/b", Revision(2), encode)
    await store.put("core/pods/one/c", Revision(3), encode)
    await store.put("core/pods/one/bb", NO_REVISION, encode)
    await store.put("core/pods/two/z", NO_REVISION, encode)
    past = store.scan("core/pods/one/", at=Revision(5))
    assert [(r.key[-1], r.revision) for r in past.records] == [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)]
    page = store.scan("core/pods/one/", at=Revision(5), limit=2)
    rest = store.scan("core/pods/one/", at=Revision(5), after=page.records[-1].key, limit=2)
    assert (page.remaining, rest.remaining) == (3, 1)
    assert page.records + rest.records == past.records[:4]
    assert store.scan("core/pods/", at=NO_REVISION).records == ()
    with pytest.raises(Ahead):
        store.scan("core/pods/", at=Revision(100))
    assert store.count("core/pods/one/") == 5
    await store.close()


async def test_replace_all_is_one_unit_of_new_revisions() -> None:
    log = HeldLog()
    store = await Store.open(log)
    for name in ("kept", "changed", "extra"):
        store.put(f"core/pods/default/{name}", NO_REVISION, encode)
    log.commit(3)
    kept, changed = store.get("core/pods/default/kept"), store.get("core/pods/default/changed")
    assert kept is not None
    assert changed is not None
    store.put(changed.key, changed.revision, encode)  # still pending when everything is replaced
    missing = Record("core/pods/default/missing", Revision(900), Revision(900), b"old")
    watcher = store.watch("", Revision(4 - 1))
    done = store.replace_all([kept, changed, missing], lambda record, revision: record.value + b" again")
    log.commit(2)
    result = await done
    assert (result.revision, result.written, result.removed) == (7, 2, 1)
    assert {r.key.rpartition("/")[2]: r.value for r in store.scan("").records} == {
        "kept": kept.value,
        "changed": b"at 2 again",
        "missing": b"old again",
    }
    assert [(c.record.revision, c.deleted) for c in await watcher.changes()] == [
        (4, False),
        (5, False),
        (6, True),
        (7, False),
    ]
    nothing = await store.replace_all(store.scan("").records, lambda record, revision: b"")
    assert (nothing.revision, nothing.written, nothing.removed) == (7, 0, 0)


async def test_closing_commits_what_was_accepted_and_refuses_the_rest() -> None:
    store = await Store.open(MemoryLog())
    accepted = store.put(KEY, NO_REVISION, encode)
    await store.close()
    assert (await accepted).revision == 1
    with pytest.raises(StoreClosed):
        store.put(KEY, Revision(1), encode)
    await store.close()


async def test_commits_are_observed() -> None:
    class Counter(NullObserver):
        def __init__(self) -> None:
            self.seen: list[tuple[int, int]] = []

        def committed(self, commit: Commit) -> None:
            self.seen.append((commit.units, commit.writes))

    counter = Counter()
    store = await Store.open(MemoryLog(), observer=counter)
    await asyncio.gather(*(store.put(f"core/pods/default/{n}", NO_REVISION, encode) for n in range(3)))
    await store.put(KEY, NO_REVISION, encode)
    assert counter.seen == [(3, 3), (1, 1)]
    await store.close()


async def test_old_snapshots_are_compacted() -> None:
    from sandpool.controlplane.store.history import HistoryLimits

    store = await Store.open(MemoryLog(), history_limits=HistoryLimits(changes=4))
    revision = NO_REVISION
    for _ in range(20):
        revision = (await store.put(KEY, revision, encode)).revision
    with pytest.raises(Compacted):
        store.scan("core/pods/", at=Revision(1))
    assert store.scan("core/pods/", at=Revision(18)).records[0].revision == 18
    await store.close()
