"""The store against a dictionary: any order of writes, commits, failures, restarts, snapshots and watches."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from sandpool.controlplane.store.errors import StoreFailed
from sandpool.controlplane.store.history import Cursor, HistoryLimits
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.record import Compacted, Record, Stale
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.controlplane.store.writer import Bounds
from sandpool.model.metadata import NO_REVISION, Revision
from support.storage.logs import HeldLog

KEYS = ("core/pods/one/a", "core/pods/one/b", "core/pods/two/a", "core/nodes/a", "apps/sets/one/a")
keys = st.sampled_from(KEYS)
prefixes = st.sampled_from(("", "core/", "core/pods/", "core/pods/one/", "core/nodes/", "apps/sets/none/"))
MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


class Watching:
    """A watcher, and a copy of its prefix that is built from nothing but its changes."""

    def __init__(self, cursor: Cursor, prefix: str, start: dict[str, Record]) -> None:
        self.cursor = cursor
        self.prefix = prefix
        self.copy = {key: record for key, record in start.items() if key.startswith(prefix)}
        self.bookmark = cursor.revision


class StoreMachine(RuleBasedStateMachine):
    """The model: states by revision, and writes that are decided but not yet durable."""

    history_limits = HistoryLimits(changes=12)

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.states: dict[int, dict[str, Record]] = {0: {}}
        self.durable = 0
        self.pending: list[tuple[int, dict[str, Record]]] = []
        self.futures: list[tuple[int, asyncio.Future[Any]]] = []
        self.watching: list[Watching] = []

    def run(self, coroutine: Any) -> Any:
        try:
            return self.loop.run_until_complete(coroutine)
        finally:
            self.settle()

    async def turn(self) -> None:
        await asyncio.sleep(0)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()

    store: Store

    def settle(self) -> None:
        """Brings the model up to date with what the store has published."""

    def newest(self) -> dict[str, Record]:
        return self.pending[-1][1] if self.pending else self.states[self.durable]

    def decided(self, future: asyncio.Future[Any], state: dict[str, Record], revision: int) -> None:
        self.pending.append((revision, state))
        self.futures.append((revision, future))

    @rule(key=keys, size=st.integers(0, 50))
    def put(self, key: str, size: int) -> None:
        async def act() -> None:
            before = self.newest().get(key)
            value = b"x" * size
            future = self.store.put(key, before.revision if before else NO_REVISION, lambda r: b"%d %b" % (r, value))
            record = self.store.newest(key)
            assert record is not None
            assert record.value == b"%d %b" % (record.revision, value)
            assert record.created == (before.created if before else record.revision)
            self.decided(future, {**self.newest(), key: record}, record.revision)

        self.run(act())

    @rule(key=keys)
    def delete(self, key: str) -> None:
        async def act() -> None:
            before = self.newest().get(key)
            if before is None:
                return
            given: list[Revision] = []
            future = self.store.delete(key, before.revision, lambda r: given.append(r) or b"bye")
            assert self.store.newest(key) is None
            state = dict(self.newest())
            del state[key]
            self.decided(future, state, given[0])

        self.run(act())

    @rule(several=st.lists(keys, min_size=2, max_size=4), wrong=st.booleans())
    def together(self, several: list[str], wrong: bool) -> None:
        """Perhaps the same key again. One that comes but once, last, may be `wrong`: then none is written."""

        async def act() -> None:
            before, again = self.newest(), several.count(several[-1]) > 1
            expected = [before[key].revision if key in before else NO_REVISION for key in several]
            expected[-1] = Revision(expected[-1] + wrong)
            writes = [(key, at, lambda r: b"%d" % r) for key, at in zip(several, expected, strict=True)]
            if wrong and not again:
                with pytest.raises(Stale):
                    self.store.put_together(*writes)
                return
            made, durable = self.store.put_together(*writes)
            assert [record.revision for record in made] == list(range(made[0].revision, made[0].revision + len(made)))
            for key, record in zip(several, made, strict=True):
                first = made[several.index(key)].revision
                assert record.created == (before[key].created if key in before else first)
            self.decided(durable, before | dict(zip(several, made, strict=True)), made[-1].revision)

        self.run(act())

    @rule(key=keys, wrong=st.integers(0, 40))
    def stale(self, key: str, wrong: int) -> None:
        before = self.newest().get(key)
        if wrong == (before.revision if before else 0):
            return
        with pytest.raises(Stale) as caught:
            self.store.put(key, Revision(wrong), lambda r: b"")
        assert caught.value.newest == before

    @rule(kept=st.sets(keys))
    def replace(self, kept: set[str]) -> None:
        async def act() -> None:
            state = {key: record for key, record in self.newest().items() if key in kept}
            if len(state) == len(self.newest()):
                return
            given: list[Revision] = []
            future = self.store.replace_all(list(state.values()), lambda record, r: given.append(r) or b"bye")
            self.decided(future, state, given[-1])

        self.run(act())

    @rule(prefix=prefixes, back=st.integers(0, 20))
    def watch(self, prefix: str, back: int) -> None:
        since = max(self.store.oldest, self.durable - back)
        if since in self.states:  # other revisions belong to failed writes, or lie inside a unit
            self.watching.append(Watching(self.store.watch(prefix, Revision(since)), prefix, self.states[since]))

    @rule(prefix=prefixes, back=st.integers(0, 20), limit=st.integers(0, 3), after=st.one_of(st.just(""), keys))
    def look_back(self, prefix: str, back: int, limit: int, after: str) -> None:
        at = Revision(max(0, self.durable - back))
        if at not in self.states:
            return
        try:
            found = self.store.scan(prefix, at=at, limit=limit, after=after)
        except Compacted:
            assert at < self.store.oldest
            return
        expected = [r for k, r in sorted(self.states[at].items()) if k.startswith(prefix) and k > after]
        assert list(found.records) == (expected[:limit] if limit else expected)
        assert (found.revision, found.remaining) == (at, len(expected) - len(found.records))

    @rule(which=st.integers(0, 5))
    def follow(self, which: int) -> None:
        if not self.watching:
            return
        watching = self.watching[which % len(self.watching)]

        async def act() -> None:
            waiting = asyncio.create_task(watching.cursor.changes())
            await self.turn()
            assert watching.cursor.revision >= watching.bookmark
            watching.bookmark = watching.cursor.revision
            if not waiting.done():
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                changes = []
            else:
                try:
                    changes = waiting.result()
                except Compacted:
                    self.watching.remove(watching)
                    return
                assert changes
            self.settle()
            self.replay(watching, changes)

        self.run(act())

    def replay(self, watching: Watching, changes: list[Any]) -> None:
        for change in changes:
            key = change.record.key
            assert key.startswith(watching.prefix)
            assert change.previous == watching.copy.get(key)
            if change.deleted:
                del watching.copy[key]
            else:
                watching.copy[key] = change.record
        state = self.states[watching.bookmark]  # a real writer may have published more since
        assert watching.copy == {k: r for k, r in state.items() if k.startswith(watching.prefix)}

    @invariant()
    def reads_are_durable(self) -> None:
        if not hasattr(self, "store"):
            return
        state = self.states[self.durable]
        assert self.store.revision == self.durable
        for key in KEYS:
            assert self.store.get(key) == state.get(key)
            assert self.store.newest(key) == self.newest().get(key)
        assert list(self.store.scan("").records) == [state[key] for key in sorted(state)]

    def committed(self, count: int) -> None:
        for revision, state in self.pending[:count]:
            self.states[revision] = state
            self.durable = revision
        del self.pending[:count]
        for revision, future in self.futures:
            assert future.done() == (revision <= self.durable)
        self.futures = [(revision, future) for revision, future in self.futures if not future.done()]


class HeldMachine(StoreMachine):
    """Commits come late and in parts, and fail."""

    @initialize()
    def open(self) -> None:
        self.log = HeldLog()
        self.store = self.run(Store.open(self.log, history_limits=self.history_limits))

    @rule(count=st.integers(1, 4))
    def commit(self, count: int) -> None:
        self.log.commit(count)
        self.run(self.turn())
        self.committed(count)

    @rule()
    def fail(self) -> None:
        self.log.fail()
        lost, self.futures, self.pending = self.futures, [], []
        for _, future in lost:
            assert isinstance(future.exception(), StoreFailed)


class MemoryMachine(StoreMachine):
    """The twin: every turn of the loop commits."""

    @initialize()
    def open(self) -> None:
        self.store = self.run(Store.open(MemoryLog(), history_limits=self.history_limits))

    def settle(self) -> None:
        self.committed(sum(revision <= self.store.revision for revision, _ in self.pending) if self.pending else 0)

    @rule()
    def wait(self) -> None:
        self.run(self.turn())
        assert not self.pending


class SqliteMachine(StoreMachine):
    """A real file that is closed and opened again; writes become durable in groups of its own choosing."""

    bounds = Bounds(window=100, checkpoint=64 * 1024, wal=128 * 1024)

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.reopen()

    def reopen(self) -> None:
        self.store = self.run(
            Store.open(SqliteLog(self.folder / "store.db", self.bounds), history_limits=self.history_limits)
        )

    @rule()
    def wait(self) -> None:
        if self.futures:
            self.run(asyncio.wait([future for _, future in self.futures]))
        assert not self.pending

    @rule()
    def restart(self) -> None:
        self.wait()
        self.run(self.store.close())
        self.reopen()
        self.watching.clear()

    def settle(self) -> None:
        """Commits arrive whenever the loop turns: the store says how far they have come."""
        self.committed(sum(revision <= self.store.revision for revision, _ in self.pending) if self.pending else 0)

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


def search(machine: type[StoreMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_delayed_and_failing_commits() -> None:
    search(HeldMachine, 30, 40)


def test_the_memory_twin() -> None:
    search(MemoryMachine, 15, 40)


def test_a_file_that_is_closed_and_opened() -> None:
    search(SqliteMachine, 12, 30)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("machine", [HeldMachine, MemoryMachine, SqliteMachine])
def test_deep(machine: type[StoreMachine]) -> None:
    search(machine, 300, 80)
