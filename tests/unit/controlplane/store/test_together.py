"""Several keys in one write: all of them or none, in this order, in one commit, seen as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from sandpool.controlplane.store.errors import StoreClosed, StoreFailed
from sandpool.controlplane.store.log import Commit, Log, MemoryLog
from sandpool.controlplane.store.port import Store as Port
from sandpool.controlplane.store.record import Record, Stale
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import NullObserver, Store
from sandpool.model.metadata import NO_REVISION, Revision
from support.storage.logs import HeldLog

BOX, CLAIM, ONE = "agents/boxes/default/m", "agents/claims/default/c", "agents/boxes/default/one"
LOGS: dict[str, Callable[[Path], Log]] = {
    "memory": lambda folder: MemoryLog(),
    "sqlite": lambda folder: SqliteLog(folder / "store.db"),
}


def encode(revision: Revision) -> bytes:
    return b"at %d" % revision


def broken(revision: Revision) -> bytes:
    raise RuntimeError("cannot encode")


class Commits(NullObserver):
    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []  # units and writes of each

    def committed(self, commit: Commit) -> None:
        self.seen.append((commit.units, commit.writes))


@pytest.fixture(params=LOGS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    return LOGS[request.param](tmp_path)


async def a_held_store() -> tuple[Store, HeldLog]:
    """One key is there: revision 1."""
    log = HeldLog()
    store = await Store.open(log)
    store.put(BOX, NO_REVISION, encode)
    log.commit(1)
    return store, log


async def test_one_commit_of_consecutive_revisions_seen_as_one_batch(log: Log) -> None:
    commits = Commits()
    store = await Store.open(log, observer=commits)
    port: Port = store
    await port.put(ONE, NO_REVISION, encode)
    await port.put(BOX, NO_REVISION, encode)
    commits.seen.clear()
    watcher = port.watch("agents/", Revision(2))
    (box, claim), durable = port.put_together((BOX, Revision(2), encode), (CLAIM, NO_REVISION, encode))
    assert box == Record(BOX, Revision(3), Revision(2), b"at 3"), "it was created before"
    assert claim == Record(CLAIM, Revision(4), Revision(4), b"at 4")
    await durable
    assert commits.seen == [(1, 2)]
    assert (port.get(BOX), port.get(CLAIM), port.revision) == (box, claim, 4)
    changes = await watcher.changes()
    assert [(change.record, change.deleted) for change in changes] == [(box, False), (claim, False)]
    assert [change.previous.revision if change.previous else None for change in changes] == [2, None]
    assert (await port.put(CLAIM, Revision(4), encode)).created == 4
    await store.close()


async def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    store = await Store.open(SqliteLog(tmp_path / "store.db"))
    await store.put(BOX, NO_REVISION, encode)
    made, durable = store.put_together(
        (CLAIM, NO_REVISION, encode), (BOX, Revision(1), encode), (CLAIM, NO_REVISION, encode)
    )
    await durable
    await store.close()
    store = await Store.open(SqliteLog(tmp_path / "store.db"))
    assert store.scan("").records == made[1:]
    assert [record.created for record in store.scan("").records] == [1, 2]
    changes = await store.watch("", Revision(1)).changes()
    assert [change.record.revision for change in changes] == [2, 3, 4]
    assert (await store.put(CLAIM, Revision(4), encode)).revision == 5
    await store.close()


async def test_a_key_twice_is_two_steps_of_it(log: Log) -> None:
    """The second follows the first, whatever it expects."""
    store = await Store.open(log)
    await store.put(BOX, NO_REVISION, encode)
    made, durable = store.put_together(
        (CLAIM, NO_REVISION, encode), (BOX, Revision(1), encode), (CLAIM, NO_REVISION, encode)
    )
    created, box, bound = made
    assert (created.revision, box.revision, bound.revision) == (2, 3, 4)
    assert (created.created, box.created, bound.created) == (2, 1, 2)
    assert store.newest(CLAIM) == bound
    await durable
    assert (store.get(CLAIM), store.count("agents/claims/")) == (bound, 1)
    changes = await store.watch("agents/claims/", Revision(1)).changes()
    assert [(change.record, change.previous) for change in changes] == [(created, None), (bound, created)]
    assert store.scan("agents/claims/", at=Revision(2)).records == (created,)
    assert (await store.delete(CLAIM, Revision(4), encode)).created == 2
    await store.close()


async def test_decided_at_once_and_seen_when_durable() -> None:
    store, log = await a_held_store()
    made, durable = store.put_together((BOX, Revision(1), encode), (CLAIM, NO_REVISION, encode))
    assert (store.newest(BOX), store.newest(CLAIM)) == made
    assert (store.deciding(BOX), store.deciding(CLAIM)) == (2, 3)
    assert (store.revision, store.get(CLAIM)) == (1, None)
    assert [len(unit) for unit in log.held] == [2]
    following = store.put(CLAIM, Revision(3), encode)  # does not wait for it
    waiting = [asyncio.create_task(store.durable(Revision(revision))) for revision in (2, 3)]
    await asyncio.sleep(0)
    log.commit(1)
    await asyncio.gather(durable, *waiting)
    assert (store.get(BOX), store.get(CLAIM)) == made
    assert not following.done()
    log.commit(1)
    assert (await following).revision == 4


@pytest.mark.parametrize(
    "writes",
    [
        ((BOX, Revision(1), encode), (CLAIM, Revision(9), encode)),
        ((CLAIM, NO_REVISION, encode), (BOX, NO_REVISION, encode)),
        ((CLAIM, NO_REVISION, encode), (BOX, Revision(7), encode)),
    ],
    ids=["absent", "present", "moved on"],
)
async def test_one_stale_key_and_nothing_is_written(writes: tuple[object, ...]) -> None:
    store, log = await a_held_store()
    before = store.newest(BOX)
    with pytest.raises(Stale) as caught:
        store.put_together(*writes)  # type: ignore[arg-type]
    assert caught.value.newest == store.newest(caught.value.key)
    await nothing_is_left(store, log, before)


async def test_an_encoder_that_fails_leaves_no_trace_of_the_others() -> None:
    store, log = await a_held_store()
    before = store.newest(BOX)
    with pytest.raises(RuntimeError):
        store.put_together((BOX, Revision(1), encode), (CLAIM, NO_REVISION, broken))
    await nothing_is_left(store, log, before)


async def nothing_is_left(store: Store, log: HeldLog, box: Record | None) -> None:
    assert not log.held
    assert (store.newest(BOX), store.newest(CLAIM)) == (box, None)
    assert store.deciding(BOX) == store.deciding(CLAIM) == NO_REVISION
    next_one = store.put(CLAIM, NO_REVISION, encode)
    log.commit(1)
    assert (await next_one).revision == 2, "no revision was used up"


async def test_lost_together_when_the_commit_fails() -> None:
    store, log = await a_held_store()
    before = store.newest(BOX)
    _, durable = store.put_together((BOX, Revision(1), encode), (CLAIM, NO_REVISION, encode))
    waiting = asyncio.create_task(store.durable(Revision(2)))
    await asyncio.sleep(0)
    log.fail()
    for lost in (durable, waiting):
        with pytest.raises(StoreFailed):
            await lost
    assert (store.newest(BOX), store.newest(CLAIM)) == (before, None)
    for revision in (2, 3):
        with pytest.raises(StoreFailed):
            await store.durable(Revision(revision))
    again, durable = store.put_together((BOX, Revision(1), encode), (CLAIM, NO_REVISION, encode))
    log.commit(1)
    await durable
    assert [record.revision for record in again] == [4, 5], "2 and 3 are never given again"


async def test_who_stops_waiting_undoes_nothing() -> None:
    store, log = await a_held_store()
    made, durable = store.put_together((BOX, Revision(1), encode), (CLAIM, NO_REVISION, encode))
    durable.cancel()
    log.commit(1)
    assert (store.get(BOX), store.get(CLAIM)) == made


async def test_a_closed_store_takes_none_of_them() -> None:
    store = await Store.open(MemoryLog())
    await store.close()
    with pytest.raises(StoreClosed):
        store.put_together((BOX, NO_REVISION, encode), (CLAIM, NO_REVISION, encode))
    assert store.newest(BOX) is None


# Early: whoever made a write goes on before anybody can hear of it


async def everything_seen(store: Store, seen: list[str]) -> None:
    """Looks in every turn of the loop, in every way there is."""
    while "shown" not in seen:
        if store.get(CLAIM) is not None or store.revision > 1 or store.scan("").revision > 1:
            seen.append("shown")
        await asyncio.sleep(0)


async def events_seen(store: Store, seen: list[str]) -> None:
    """A watcher that is at work: it does not wait to be woken, and takes what is there."""
    watcher = store.watch("agents/claims/", Revision(1))
    while "event" not in seen:
        try:
            async with asyncio.timeout(0):
                await watcher.changes()
            seen.append("event")
        except TimeoutError:
            await asyncio.sleep(0)


@pytest.mark.parametrize("commits", [1, 2, 3])
async def test_whoever_wrote_early_goes_on_before_anybody_can_see_it(commits: int) -> None:
    """Also if the next commits come at once: revisions are shown in order."""
    store, log = await a_held_store()
    seen: list[str] = []

    async def write() -> None:
        _, durable = store.put_together((BOX, Revision(1), encode), (CLAIM, NO_REVISION, encode), early=True)
        await durable
        seen.append("answer")
        assert store.newest(CLAIM) is not None
        await asyncio.sleep(0)
        assert store.get(CLAIM) is not None, "in the next turn it is there"

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        await asyncio.sleep(0)
        others = [store.put(f"agents/boxes/default/{number}", NO_REVISION, encode) for number in range(commits - 1)]
        tasks.create_task(everything_seen(store, seen))
        tasks.create_task(events_seen(store, seen))
        await asyncio.sleep(0)
        for _ in range(commits):
            log.commit(1)
        assert (store.revision, seen) == (1, [])
        assert not any(other.done() for other in others), "what is behind it is not told before it is shown"
        await store.durable(Revision(3))
        assert store.revision >= 3
    assert seen[0] == "answer"
    assert [(await other).revision for other in others] == [4 + number for number in range(commits - 1)]
    await store.close()


async def test_what_is_early_and_durable_is_shown_before_a_failure_and_before_the_end() -> None:
    for end in ("fail", "close"):
        store, log = await a_held_store()
        made, durable = store.put_together((BOX, Revision(1), encode), (CLAIM, NO_REVISION, encode), early=True)
        lost = store.put(ONE, NO_REVISION, encode)
        log.commit(1)
        if end == "fail":
            log.fail()
            assert (store.get(BOX), store.get(CLAIM)) == made
            with pytest.raises(StoreFailed):
                await lost
        await store.close()
        assert (store.get(BOX), store.get(CLAIM)) == made
        await durable


async def test_nobody_is_left_to_go_on_early() -> None:
    store, log = await a_held_store()
    made, durable = store.put_together((BOX, Revision(1), encode), (CLAIM, NO_REVISION, encode), early=True)
    durable.cancel()
    log.commit(1)
    await store.durable(Revision(3))
    assert (store.get(BOX), store.get(CLAIM)) == made, "the write stands"
    await store.close()
