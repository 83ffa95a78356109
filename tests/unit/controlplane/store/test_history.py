"""Watchers: what they see, when they are woken, when they have fallen behind."""

from __future__ import annotations

import asyncio

import pytest

from sandpool.controlplane.store.errors import Ahead, StoreClosed
from sandpool.controlplane.store.history import EACH, History, HistoryLimits
from sandpool.controlplane.store.record import Change, Compacted, Record
from sandpool.model.metadata import NO_REVISION, Revision


class Feed:
    """A history, and one change after the other. `live` is what a store would hold."""

    def __init__(self, history_limits: HistoryLimits = HistoryLimits()) -> None:
        self.history = History(NO_REVISION, (), NO_REVISION, history_limits)
        self.revision = NO_REVISION
        self.live: dict[str, Record] = {}

    def add(self, *keys: str, size: int = 1) -> None:
        self.history.extend([self._change(key, size) for key in keys], self.revision)

    def delete(self, *keys: str, size: int = 1) -> None:
        changes = [self._change(key, size, deleted=True) for key in keys]
        self.history.extend(changes, self.revision)

    def _change(self, key: str, size: int, *, deleted: bool = False) -> Change:
        self.revision = Revision(self.revision + 1)
        before = self.live.pop(key, None)
        record = Record(key, self.revision, Revision(1), b"x" * size)
        if not deleted:
            self.live[key] = record
        return Change(record, before, deleted)


def revisions(changes: list[Change]) -> list[int]:
    return [change.record.revision for change in changes]


@pytest.mark.parametrize(
    ("prefix", "seen"),
    [
        ("", [1, 2, 3, 4]),
        ("core/", [1, 2, 3]),
        ("core/pods/", [1, 2]),
        ("core/pods/one/", [1]),
        ("core/nodes/", [3]),
        ("core/pods/three/", []),
    ],
)
async def test_a_watcher_sees_its_prefix_only(prefix: str, seen: list[int]) -> None:
    feed = Feed()
    early = feed.history.watch(prefix, NO_REVISION)
    waiting = asyncio.create_task(early.changes())
    await asyncio.sleep(0)
    feed.add("core/pods/one/a", "core/pods/two/a", "core/nodes/a", "apps/sets/one/a")
    await asyncio.sleep(0)
    late = feed.history.watch(prefix, NO_REVISION)
    if seen:
        assert revisions(await waiting) == seen
        assert revisions(await late.changes()) == seen
    else:
        assert not waiting.done()
        assert early.revision == 4  # a bookmark may say so: it has missed nothing
        waiting.cancel()


async def test_a_waiting_watcher_is_never_behind_however_much_others_write() -> None:
    feed = Feed(HistoryLimits(changes=8))
    watcher = feed.history.watch("core/pods/quiet/", NO_REVISION)
    waiting = asyncio.create_task(watcher.changes())
    await asyncio.sleep(0)
    for _ in range(100):
        feed.add("core/pods/busy/a")
    assert watcher.revision == 100
    feed.add("core/pods/quiet/a")
    assert watcher.revision == 100  # woken, but it has not seen the newest yet
    assert revisions(await waiting) == [101]
    assert watcher.revision == 101


async def test_a_slow_watcher_is_compacted_and_nobody_waits_for_it() -> None:
    feed = Feed(HistoryLimits(changes=8))
    slow = feed.history.watch("core/pods/", NO_REVISION)
    feed.add("core/pods/one/a")
    assert revisions(await slow.changes()) == [1]
    for _ in range(20):
        feed.add("core/pods/one/a")
    with pytest.raises(Compacted) as caught:
        await slow.changes()
    assert caught.value.asked == 1
    assert caught.value.oldest == feed.history.oldest


async def test_bytes_bound_the_history_too() -> None:
    feed = Feed(HistoryLimits(size=10 * (100 + EACH)))
    for _ in range(50):
        feed.add("core/pods/one/a", size=100)
    with pytest.raises(Compacted):
        feed.history.watch("core/pods/", Revision(30))
    watcher = feed.history.watch("core/pods/", Revision(45))
    assert revisions(await watcher.changes()) == [46, 47, 48, 49, 50]


async def test_one_busy_resource_does_not_push_out_another() -> None:
    feed = Feed(HistoryLimits(changes=8))
    feed.add("core/nodes/a")
    for _ in range(100):
        feed.add("core/pods/one/a")
    assert revisions(await feed.history.watch("core/nodes/", NO_REVISION).changes()) == [1]
    with pytest.raises(Compacted):
        feed.history.watch("", NO_REVISION)
    assert feed.history.oldest > 90


def kept(feed: Feed) -> int:
    """Bytes that nobody holds on to but the history: its changes, and values that are no longer those of the store."""
    rings = (*feed.history.rings.values(), feed.history.everything)
    changes = {c.record.revision: c for ring in rings for c in ring.changes}
    states = {id(state): state for c in changes.values() for state in (c.record, c.previous) if state is not None}
    for state in feed.live.values():
        states.pop(id(state), None)
    return EACH * len(changes) + sum(len(state.value) for state in states.values())


async def test_all_resources_together_have_one_bound_in_bytes() -> None:
    """Each had a bound of its own once, and a server with twenty busy kinds kept twenty times as much."""
    size = 100 * (1000 + EACH)
    feed = Feed(HistoryLimits(size=size))
    feed.add("core/nodes/quiet", size=1000)
    for _ in range(200):
        feed.add("core/pods/one/a", "agents/sandboxes/one/a", size=1000)
        feed.add("core/events/one/a", size=10)
        assert kept(feed) <= size * 9 / 8 + 3000
    assert revisions(await feed.history.watch("core/nodes/", NO_REVISION).changes()) == [1], "the largest give way"
    for bucket in ("core/pods/", "agents/sandboxes/"):
        assert len(feed.history.ring(bucket).changes) >= 20
    assert sum(ring.size for ring in feed.history.rings.values()) == feed.history.size
    oldest = feed.history.oldest
    seen = await feed.history.watch("", oldest).changes()
    assert revisions(seen) == list(range(oldest + 1, feed.revision + 1)), "whoever follows everything misses nothing"


@pytest.mark.parametrize("most", [1000, 20])
async def test_what_lives_long_counts_when_it_is_deleted(most: int) -> None:
    """The state before a delete did not count once the change that had made it was forgotten: of Events that was half of all bytes."""
    size = 100 * (1000 + EACH)
    feed = Feed(HistoryLimits(changes=most, size=size))
    feed.add(*(f"core/events/one/{number}" for number in range(200)), size=1000)
    for number in range(1000):
        feed.delete(f"core/events/one/{number}", size=1000)
        feed.add(f"core/events/one/{number + 200}", size=1000)
        assert kept(feed) <= size * 9 / 8 + 3000
        assert kept(feed) == sum(ring.size for ring in feed.history.rings.values())


async def test_one_change_larger_than_the_bound_is_not_kept() -> None:
    feed = Feed(HistoryLimits(size=1000))
    feed.add("core/pods/one/a", size=5000)
    assert kept(feed) == EACH, "the value is the store's"
    waiting = asyncio.create_task(feed.history.watch("core/pods/", Revision(1)).changes())
    await asyncio.sleep(0)
    feed.add("core/pods/one/a", size=10)
    assert kept(feed) == 0
    with pytest.raises(Compacted):
        await waiting
    feed.add("core/pods/one/a", size=10)
    assert revisions(await feed.history.watch("core/pods/", Revision(2)).changes()) == [3]


async def test_watching_from_the_future_is_refused() -> None:
    feed = Feed()
    feed.add("core/nodes/a")
    with pytest.raises(Ahead):
        feed.history.watch("core/nodes/", Revision(2))


async def test_a_cancelled_wait_loses_nothing() -> None:
    feed = Feed()
    watcher = feed.history.watch("core/pods/", NO_REVISION)
    waiting = asyncio.create_task(watcher.changes())
    await asyncio.sleep(0)
    feed.add("core/pods/one/a")
    waiting.cancel()  # woken already, and cancelled before it could take the change
    with pytest.raises(asyncio.CancelledError):
        await waiting
    feed.add("core/pods/one/a")
    assert revisions(await watcher.changes()) == [1, 2]


async def test_closing_ends_the_wait() -> None:
    feed = Feed()
    watchers = [feed.history.watch("core/pods/", NO_REVISION) for _ in range(2)]
    waiting = [asyncio.create_task(watcher.changes()) for watcher in watchers]
    await asyncio.sleep(0)
    watchers[0].close()
    with pytest.raises(StoreClosed):
        await waiting[0]
    assert not waiting[1].done()
    feed.history.close()
    with pytest.raises(StoreClosed):
        await waiting[1]


async def test_giving_up_a_wait_does_not_make_a_watcher_late() -> None:
    """While it waited others wrote more than is remembered; nothing of that was its own."""
    feed = Feed(HistoryLimits(changes=8))
    feed.add("core/pods/quiet/a")
    quiet = feed.history.watch("core/pods/quiet/", feed.revision)
    waiting = asyncio.create_task(quiet.changes())
    await asyncio.sleep(0)
    for _ in range(50):
        feed.add("core/pods/busy/a")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert quiet.revision == feed.revision
    feed.add("core/pods/quiet/b")
    assert revisions(await quiet.changes()) == [feed.revision]


async def test_news_that_come_while_a_wait_is_given_up_are_kept() -> None:
    feed = Feed()
    feed.add("core/pods/one/a")
    watcher = feed.history.watch("core/pods/one/", feed.revision)
    for cancel_first in (True, False):
        waiting = asyncio.create_task(watcher.changes())
        await asyncio.sleep(0)
        if cancel_first:
            waiting.cancel()
            feed.add("core/pods/one/b")
        else:
            feed.add("core/pods/one/b")
            waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert revisions(await watcher.changes()) == [feed.revision]


async def test_one_batch_wakes_everybody_whom_it_concerns_once() -> None:
    feed = Feed()
    prefixes = ("", "core/", "core/pods/", "core/pods/one/", "core/pods/two/", "core/nodes/", "core/secrets/")
    waits = [asyncio.create_task(feed.history.watch(prefix, NO_REVISION).changes()) for prefix in prefixes]
    await asyncio.sleep(0)
    feed.add("core/pods/one/a", "core/nodes/n", "core/pods/two/a", "core/pods/one/b", "core/pods/two/b")
    await asyncio.sleep(0)
    found = [revisions(wait.result()) if wait.done() else None for wait in waits]
    assert found == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 3, 4, 5], [1, 4], [3, 5], [2], None]
    waits[-1].cancel()
