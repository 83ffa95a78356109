"""The writer's thread: commits in groups, and compacts superseded rows. Everything appended while a commit runs goes into the next one, up to a bound.

After a failure it discards units until it gets `Resume`, because all of them were decided on top of the writes that failed.

Compaction: above the floor the log is complete: every row's predecessor is there, so the history survives a restart. Below the floor only
live rows remain. The floor moves up in small steps, never into the last `window` revisions, and never past the newest row, whose id prevents
revisions from being assigned twice. It moves while the writer is idle. Only if the writer is never idle, and a quarter of a window has
accumulated, steps are added to commits, for which callers wait. On a full disk, space matters more than history: the window is one revision, and
each commit removes what the previous one superseded. Rows of deletes then reuse each other's pages, so deleting does not make the file grow.
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final

from sandpool.controlplane.store.checkpoint import Checkpointer
from sandpool.controlplane.store.log import Commit, Loaded, Unit
from sandpool.controlplane.store.rows import COLUMNS, census_after, floor_checksum, row_columns
from sandpool.model.metadata import Revision

SMALLEST_STEP = 64
_COLUMNS = 8
_IDLE: Final = 0.05  # seconds without a commit before compaction
_ROW_COST: Final = 4096  # estimated bytes of a row in the write-ahead log, in addition to its value
_MOST: Final = 256  # rows in one statement
_SHORT_BATCH: Final = 1024 * 1024  # bytes of values in a commit while disk space is short


def next_floor(floor: Revision, newest: Revision, window: int, writes: int) -> Revision | None:
    """Where a commit of `writes` writes should move the floor; None: nowhere yet. It moves twice as far as the log grows, so that
    compaction catches up, and not for a few rows, unless `window` is 0."""
    highest = newest - max(window, 1)
    if highest - floor < (max(SMALLEST_STEP, window // 4) if window else 1):
        return None
    return Revision(min(highest, floor + max(SMALLEST_STEP, 2 * writes)))


def idle_floor(floor: Revision, newest: Revision, window: int) -> Revision | None:
    """Where to move the floor while the writer is idle: one small step, because a commit may arrive. None: nowhere."""
    highest = newest - max(window, 1)
    return None if highest - floor < (SMALLEST_STEP if window else 1) else Revision(min(highest, floor + SMALLEST_STEP))


def move_floor(connection: sqlite3.Connection, floor: Revision, target: Revision, identity: str) -> None:
    """Moves the floor to `target`, in the caller's transaction: removes rows superseded by rows up to `target`, and deletions up to there."""
    step = (floor, target)
    connection.execute("DELETE FROM log WHERE id IN (SELECT prev_revision FROM log WHERE id > ? AND id <= ?)", step)
    connection.execute("DELETE FROM log WHERE id > ? AND id <= ? AND deleted", step)
    connection.execute("UPDATE floor SET revision = ?, checksum = ?", (target, floor_checksum(target, identity)))


def _insert(rows: int) -> str:
    """An INSERT for up to `rows` rows: those without an id are skipped."""
    values = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * rows)
    some = f"SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL"  # noqa: S608
    return f"INSERT INTO log ({COLUMNS}) {some}"


# Each statement releases the GIL and must get it back from a busy loop, so one statement inserts as many rows as possible.
# There is one for each power of two, so that SQLite keeps only a few prepared.
_INSERTS: Final = tuple(_insert(1 << power) for power in range(_MOST.bit_length()))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one commit, of the history, and of the write-ahead log."""

    writes: int = 2_000  # in one commit
    size: int = 8 * 1024 * 1024  # bytes of values in one commit
    window: int = 20_000  # newest revisions, which are never compacted
    checkpoint: int = 4 * 1024 * 1024  # bytes in the write-ahead log after which the checkpoint thread runs
    wal: int = 32 * 1024 * 1024  # bytes in the write-ahead log after which the writer itself runs a checkpoint
    wait: float = 5.0  # seconds to wait for another process that locks the file
    room: int = 0  # bytes of disk that the file and its write-ahead log each preallocate beyond their ends


class Stop:
    """Ends the thread once everything before it is committed."""


class Resume:
    """Ends the discarding of units after a failure."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Whether disk space is short: then no history is kept on disk, and the write-ahead log is kept short."""

    there: bool


Item = list[Unit] | Stop | Resume | Shortage


class Writer:
    """The body of the writer's thread. Other threads may use only `queue`."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        checkpointer: Checkpointer,
        bounds: Bounds,
        loaded: Loaded,
        acknowledge: Callable[[Revision], None],
    ) -> None:
        self.queue: SimpleQueue[Item] = SimpleQueue()
        self._connection = connection
        self._checkpointer = checkpointer
        self._bounds = bounds
        self._floor = self._newest = loaded.floor
        self._identity = loaded.identity
        self._census = loaded.census
        self.acknowledge = acknowledge  # called once a commit is durable, before it is published
        self._backlog: deque[Unit] = deque()
        self._stopping = False
        self._discarding = False
        self._compaction_paused = False  # no compaction in the first commit after a failure: disk space may be short
        self._short = False
        self._wipes = 0  # the setting of secure_delete to return to when the shortage ends

    def run(self, committed: Callable[[Commit], None], failed: Callable[[Exception], None]) -> None:
        """Runs until Stop. `committed` and `failed` report to the loop's thread."""
        while not self._stopping or self._backlog:
            self.gather()
            if self._discarding:
                self._backlog.clear()
                continue
            batch = self._batch()
            if not batch:
                self._compact_while_idle()
                continue
            try:
                if self._short:
                    self._checkpointer.relieve(self._connection, short=True)
                commit = self.commit(batch)
            except Exception as error:
                self._backlog.clear()
                self._discarding = self._compaction_paused = True
                failed(error)
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                    self._make_room()
            else:
                self.acknowledge(self._newest)
                committed(commit)
                self._checkpointer.relieve(self._connection, short=self._short)

    def _make_room(self) -> None:
        """Compacts all superseded rows, so that new rows can reuse their pages: the file itself never shrinks."""
        self._set_shortage(True)
        self._compaction_paused = False
        self._checkpointer.relieve(self._connection, short=True)
        while self._compact_while_idle():
            pass

    def _set_shortage(self, short: bool) -> None:
        """Relaxes secure_delete while space is short: overwriting deleted rows would write their size to the write-ahead log."""
        if short is not self._short:
            self._short = short
            if short:
                self._wipes = self._connection.execute("PRAGMA secure_delete").fetchone()[0]
            self._connection.execute(f"PRAGMA secure_delete = {'FAST' if short else self._wipes}")

    def gather(self) -> None:
        """Takes all queued items; waits only if there is no backlog."""
        idle = not self._backlog and not self._stopping
        try:
            behind = self._idle_floor() is not None
            item = self.queue.get(block=idle, timeout=None if not behind else 0.0 if self._short else _IDLE)
            while True:
                if isinstance(item, list):
                    self._backlog.extend(item)
                elif isinstance(item, Stop):
                    self._stopping = True
                elif isinstance(item, Shortage):
                    self._set_shortage(item.there)
                else:
                    self._backlog.clear()
                    self._discarding = False
                item = self.queue.get_nowait()
        except Empty:
            return

    def _idle_floor(self) -> Revision | None:
        return None if self._compaction_paused else idle_floor(self._floor, self._newest, self._window)

    @property
    def _window(self) -> int:
        return 0 if self._short else self._bounds.window

    def _compact_while_idle(self) -> bool:
        """Compacts one step in its own transaction, so that commits need not. Errors are ignored: the next commit will meet them. Returns
        whether a step was made."""
        target = self._idle_floor()
        if target is None or self._stopping:
            return False
        connection = self._connection
        self._checkpointer.begin()
        try:
            connection.execute("BEGIN IMMEDIATE")
            move_floor(connection, self._floor, target, self._identity)
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._compaction_paused = True
            return False
        self._checkpointer.ended((target - self._floor) * _ROW_COST)
        self._floor = target
        self._checkpointer.relieve(connection, short=self._short)
        return True

    def _batch(self) -> list[Unit]:
        """The units of the next commit: at least one if there is any. A unit is never split."""
        batch: list[Unit] = []
        writes = size = 0
        most = _SHORT_BATCH if self._short else self._bounds.size
        while self._backlog and writes < self._bounds.writes and size < most:
            unit = self._backlog.popleft()
            batch.append(unit)
            writes += len(unit)
            size += sum(len(entry.change.record.value) for entry in unit)
        return batch

    def commit(self, batch: list[Unit]) -> Commit:
        began = time.perf_counter()
        rows, size, census = _rows(batch, self._census)
        writes = len(rows) // _COLUMNS
        newest = batch[-1][-1].change.record.revision
        target = None if self._compaction_paused else next_floor(self._floor, newest, self._window, writes)
        connection = self._connection
        self._checkpointer.begin()
        try:
            if writes <= _MOST and target is None:  # a single statement is its own transaction
                _append(connection, rows)
            else:
                connection.execute("BEGIN IMMEDIATE")
                _append(connection, rows)
                if target is not None:
                    move_floor(connection, self._floor, target, self._identity)
                connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._compaction_paused = False
        self._newest = newest
        self._census = census
        self._floor = target or self._floor
        self._checkpointer.ended(size + writes * _ROW_COST)
        return Commit(len(batch), writes, time.perf_counter() - began, self._floor)


def _rows(batch: list[Unit], census: int) -> tuple[list[object], int, int]:
    """The columns of all rows in one flat list, the bytes of their values, and the census after them."""
    flat: list[object] = []
    size = 0
    for unit in batch:
        for entry in unit:
            census = census_after(census, entry.change)
            flat += row_columns(entry, census)
            size += len(entry.change.record.value)
    return flat, size, census


def _append(connection: sqlite3.Connection, flat: list[object]) -> None:
    for start in range(0, len(flat), _MOST * _COLUMNS):
        part = flat[start : start + _MOST * _COLUMNS]
        power = (len(part) // _COLUMNS - 1).bit_length()
        part += [None] * ((_COLUMNS << power) - len(part))
        connection.execute(_INSERTS[power], part)
