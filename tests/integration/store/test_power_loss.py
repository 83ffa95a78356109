"""Power loss at any moment: a real run of the real SQLite is recorded, cut, laid out on disk as it may be found, reopened.

Held then: nothing acknowledged is missing, and what is there is exactly the state after some prefix of the writes.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandpool.controlplane.store import files, marker, sqlite_file
from sandpool.controlplane.store.errors import StoreError
from sandpool.controlplane.store.log import Commit, Unit
from sandpool.controlplane.store.record import Record
from sandpool.controlplane.store.sqlite_log import SqliteLog
from sandpool.controlplane.store.store import Store
from sandpool.controlplane.store.writer import Bounds, Writer
from sandpool.model.metadata import NO_REVISION, Revision
from support.storage.disk import Event, Fate, Kind, cut
from support.storage.vfs import Recorder, RecordingOs, recording, sqlite_library

pytestmark = pytest.mark.skipif(
    sqlite_library() is None, reason="this Python hides its SQLite: no VFS can be registered"
)

# Files are laid out and reopened in memory where there is such a place: only the recorded run needs a disk.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
# Small, so that a short run passes many checkpoints, restarts of the write-ahead log and compactions.
BOUNDS = Bounds(writes=8, window=40, checkpoint=48 * 1024, wal=160 * 1024)


@dataclass
class Run:
    """Everything that was written, by revision: the truth that a reopened store is compared with."""

    recorder: Recorder
    states: dict[int, dict[str, Record]] = field(default_factory=lambda: {0: {}})
    random: random.Random = field(default_factory=lambda: random.Random(7))

    def value(self, revision: Revision) -> bytes:
        return b"%d:" % revision + self.random.randbytes(self.random.choice((40, 900, 20_000)))

    async def write(self, store: Store, key: str) -> None:
        """Puts, or now and then deletes; notes the acknowledgement when it comes."""
        newest = store.newest(key)
        state = dict(self.states[max(self.states)])
        if newest is not None and self.random.random() < 0.2:
            future = store.delete(key, newest.revision, self.value)
            del state[key]
        else:
            future = store.put(key, newest.revision if newest else NO_REVISION, self.value)
            made = store.newest(key)
            assert made is not None
            state[key] = made
        self.states[max(self.states) + 1] = state
        self.acknowledged((await future).revision)

    def acknowledged(self, revision: Revision) -> None:
        self.recorder.note(Kind.ACKNOWLEDGED, revision=revision)

    async def replace(self, store: Store) -> None:
        """One unit of several writes: after a cut there are all of them or none."""
        kept = [record for record in self.states[max(self.states)].values() if self.random.random() < 0.5]
        done = await store.replace_all(kept, lambda record, revision: record.value)
        self.states[done.revision] = {record.key: record for record in kept}
        self.acknowledged(done.revision)


async def play(run: Run, path: Path, rounds: int) -> None:
    """Opens, writes alone and in groups, replaces everything, closes; and again."""
    for _ in range(2):
        store = await Store.open(SqliteLog(path, BOUNDS))
        for step in range(rounds):
            group = run.random.choice((1, 1, 5, 12))
            keys = [f"core/pods/default/pod-{run.random.randrange(12)}" for _ in range(group)]
            await asyncio.gather(*(run.write(store, key) for key in keys))
            if step == rounds // 2:
                await run.replace(store)
        await store.close()


async def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int) -> Run:
    directory = tmp_path / "recorded"
    directory.mkdir()
    with recording(directory) as recorder:
        recording_os = RecordingOs(recorder)
        for module in (files, marker, sqlite_file):
            monkeypatch.setattr(module, "os", recording_os)
        run = Run(recorder)
        await play(run, directory / "store.db", rounds)
        monkeypatch.undo()
    return run


async def held_after_cut(run: Run, events: list[Event], moment: int, fate: Fate, seed: int) -> int:
    """Revision of the store as found after the cut, once it is checked against the truth."""
    acknowledged = max((e.revision for e in events[:moment] if e.kind is Kind.ACKNOWLEDGED), default=0)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        cut(events, moment, fate, random.Random(seed)).write_to(Path(folder))
        found, records = await reopen(Path(folder) / "store.db")
    assert found >= acknowledged, f"revision {acknowledged} was acknowledged, {found} is what is left"
    assert found in run.states, f"revision {found} is inside a unit"
    assert _comparable(records) == _comparable(run.states[found])
    return found


def _comparable(records: dict[str, Record]) -> dict[str, bytes]:
    return {key: record.value for key, record in records.items()}


async def reopen(path: Path) -> tuple[int, dict[str, Record]]:
    store = await Store.open(SqliteLog(path, BOUNDS))
    try:
        probe = await store.put("core/probes/probe", NO_REVISION, lambda revision: b"%d" % revision)
        records = {record.key: record for record in store.scan("").records if record.key != probe.key}
        return probe.revision - 1, records
    finally:
        await store.close()


async def test_nothing_acknowledged_is_lost_at_any_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await recorded(tmp_path, monkeypatch, rounds=24)
    events = run.recorder.events
    assert sum(e.kind is Kind.ACKNOWLEDGED for e in events) > 100
    chosen = random.Random(11)
    syncs = [e.index for e in events if e.kind is Kind.SYNC]
    moments = {*chosen.sample(syncs, 15), *(s + 1 for s in chosen.sample(syncs, 15)), len(events)}
    moments |= set(chosen.sample(range(len(events)), 40))
    for moment in sorted(moments):
        await held_after_cut(run, events, moment, chosen.choice(list(Fate)), seed=moment)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_nothing_acknowledged_is_lost_at_every_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await recorded(tmp_path, monkeypatch, rounds=24)
    for moment in range(len(run.recorder.events) + 1):
        for fate in Fate:
            await held_after_cut(run, run.recorder.events, moment, fate, seed=moment)


async def test_the_run_covers_what_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording holds checkpoints, fresh starts of the write-ahead log, its removal, and synced names."""
    events = (await recorded(tmp_path, monkeypatch, rounds=24)).recorder.events
    names = {e.inode: e.name for e in events if e.kind is Kind.CREATE}
    logs = [e for e in events if e.kind is Kind.WRITE and names[e.inode].endswith("store.db-wal")]
    assert sum(e.offset == 0 for e in logs) > 2, "the write-ahead log never started anew"
    database = next(e for e in events if e.kind is Kind.RENAME and e.target == "store.db")
    inode = next(number for number, name in names.items() if name == database.name)
    assert any(e.kind is Kind.WRITE and e.inode == inode and e.index > database.index for e in events)
    assert any(e.kind is Kind.REMOVE and e.name == "store.db-wal" for e in events)
    assert any(e.kind is Kind.SYNC and e.inode is None and e.covers > database.index for e in events)
    marker = next(number for number, name in names.items() if name == "store.db-mark.new")
    assert sum(e.kind is Kind.WRITE and e.inode == marker for e in events) > 50
    assert any(e.kind is Kind.SYNC and e.inode == marker and e.covers > database.index for e in events)


@pytest.mark.parametrize("ignored", ["write-ahead log", "database", "directory"])
async def test_a_store_that_does_not_sync_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignored: str
) -> None:
    """The check of the check: the same run with one kind of sync taken out of the timeline must lose something."""
    run = await recorded(tmp_path, monkeypatch, rounds=24)
    events = run.recorder.events
    logs = {e.inode for e in events if e.kind is Kind.CREATE and e.name.endswith("-wal")}
    dropped = {
        "write-ahead log": lambda e: e.inode in logs,
        "database": lambda e: e.inode is not None and e.inode not in logs,
        "directory": lambda e: e.inode is None,
    }[ignored]
    lying = [e if not (e.kind is Kind.SYNC and dropped(e)) else Event(Kind.ACKNOWLEDGED, e.index) for e in events]  # type: ignore[no-untyped-call]
    for moment in range(len(lying), 0, -7):
        try:
            await held_after_cut(run, lying, moment, Fate.NOTHING, seed=moment)
        except (AssertionError, StoreError):
            return
    pytest.fail(f"nobody noticed that the {ignored} was never synced")


async def test_a_marker_that_runs_ahead_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the check: a marker that is written before its commit is durable raises a false alarm at some cut."""
    commit = Writer.commit

    def hasty(writer: Writer, batch: list[Unit]) -> Commit:
        writer.acknowledge(batch[-1][-1].change.record.revision)
        return commit(writer, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "commit", hasty)
        run = await recorded(tmp_path, patch, rounds=8)
    events = run.recorder.events
    for moment in range(len(events), 0, -3):
        try:
            await held_after_cut(run, events, moment, Fate.EVERYTHING, seed=moment)
            await held_after_cut(run, events, moment, Fate.TORN, seed=moment)
        except StoreError:
            return
    pytest.fail("nobody noticed that the marker claimed what was not durable")
