"""The thread that commits. Everything handed over while a commit runs goes into the next one, up to a bound.

After a failure it throws away what it is handed until `resume`, because all of that was decided on top of what failed.
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
from sandpool.controlplane.store.checksums import census_after
from sandpool.controlplane.store.compaction import floor_in_a_lull, move_floor, next_floor
from sandpool.controlplane.store.log import Commit, Loaded, Unit
from sandpool.controlplane.store.rows import COLUMNS, row_columns
from sandpool.model.metadata import Revision

_COLUMNS = 8
_LULL: Final = 0.05  # seconds without anything to commit
_ROW_COST: Final = 4096  # about what a row takes in the write-ahead log beside its value
_MOST: Final = 256  # rows of one statement
_SHORT_BATCH: Final = 1024 * 1024  # bytes of values in a commit while room is short


def _insert(rows: int) -> str:
    """Takes up to so many rows: those without an id are none."""
    values = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * rows)
    some = f"SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL"  # noqa: S608
    return f"INSERT INTO log ({COLUMNS}) {some}"


# Each statement gives up the interpreter's lock and must get it back from a busy loop, so one holds all rows where it can;
# by the number of rows as a power of two, which keeps few of them prepared.
_INSERTS: Final = tuple(_insert(1 << power) for power in range(_MOST.bit_length()))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one commit, of what is kept, and of the write-ahead log (bytes)."""

    writes: int = 2_000
    size: int = 8 * 1024 * 1024
    window: int = 20_000  # revisions that are never compacted
    checkpoint: int = 4 * 1024 * 1024
    wal: int = 32 * 1024 * 1024
    wait: float = 5.0  # seconds for another process that holds the file
    room: int = 0  # bytes of the disk that the file and its write-ahead log each hold beyond their ends


class Stop:
    """Ends the thread once everything before it is committed."""


class Resume:
    """Ends the throwing away."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Whether room on the disk is short: then as little as possible is kept, and the write-ahead log is kept short."""

    there: bool


Item = list[Unit] | Stop | Resume | Shortage


class Writer:
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
        self._acknowledge = acknowledge  # called once a commit is durable, before anybody hears of it
        self._backlog: deque[Unit] = deque()
        self._stopping = False
        self._discarding = False
        self._resting = False  # no compaction in the first commit after a failure: room may be short
        self._short = False
        self._wipes = 0  # how this SQLite overwrites what is deleted, where room is not short

    def run(self, committed: Callable[[Commit], None], failed: Callable[[Exception], None]) -> None:
        """Until Stop. `committed` and `failed` pass the news to the loop's thread."""
        while not self._stopping or self._backlog:
            self._gather()
            if self._discarding:
                self._backlog.clear()
                continue
            batch = self._batch()
            if not batch:
                self._tidy()
                continue
            try:
                if self._short:
                    self._checkpointer.relieve(self._connection, short=True)
                commit = self._commit(batch)
            except Exception as error:
                self._backlog.clear()
                self._discarding = self._resting = True
                failed(error)
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                    self._make_room()
            else:
                self._acknowledge(self._newest)
                committed(commit)
                self._checkpointer.relieve(self._connection, short=self._short)

    def _make_room(self) -> None:
        """What was superseded makes room for what comes next: the file of a store never gets smaller, but has room inside."""
        self._heed(True)
        self._resting = False
        self._checkpointer.relieve(self._connection, short=True)
        while self._tidy():
            pass

    def _heed(self, short: bool) -> None:
        """Overwriting what is forgotten would take as much room in the log as it had in the database, so it waits for better times."""
        if short is not self._short:
            self._short = short
            if short:
                self._wipes = self._connection.execute("PRAGMA secure_delete").fetchone()[0]
            self._connection.execute(f"PRAGMA secure_delete = {'FAST' if short else self._wipes}")

    def _gather(self) -> None:
        """Takes all that is there; waits only if there is nothing to do."""
        idle = not self._backlog and not self._stopping
        try:
            behind = self._lull_floor() is not None
            item = self.queue.get(block=idle, timeout=None if not behind else 0.0 if self._short else _LULL)
            while True:
                if isinstance(item, list):
                    self._backlog.extend(item)
                elif isinstance(item, Stop):
                    self._stopping = True
                elif isinstance(item, Shortage):
                    self._heed(item.there)
                else:
                    self._backlog.clear()
                    self._discarding = False
                item = self.queue.get_nowait()
        except Empty:
            return

    def _lull_floor(self) -> Revision | None:
        return None if self._resting else floor_in_a_lull(self._floor, self._newest, self._window)

    @property
    def _window(self) -> int:
        return 0 if self._short else self._bounds.window

    def _tidy(self) -> bool:
        """Nobody waits: forgets in a transaction of its own what commits would have to carry. It is not urgent, so whatever
        goes wrong is left for the next commit to meet. Whether there was anything to forget."""
        target = self._lull_floor()
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
            self._resting = True
            return False
        self._checkpointer.ended((target - self._floor) * _ROW_COST)
        self._floor = target
        self._checkpointer.relieve(connection, short=self._short)
        return True

    def _batch(self) -> list[Unit]:
        """The next units, at least one if there is any: a unit is never split."""
        batch: list[Unit] = []
        writes = size = 0
        most = _SHORT_BATCH if self._short else self._bounds.size
        while self._backlog and writes < self._bounds.writes and size < most:
            unit = self._backlog.popleft()
            batch.append(unit)
            writes += len(unit)
            size += sum(len(entry.change.record.value) for entry in unit)
        return batch

    def _commit(self, batch: list[Unit]) -> Commit:
        began = time.perf_counter()
        rows, size, census = _rows(batch, self._census)
        writes = len(rows) // _COLUMNS
        newest = batch[-1][-1].change.record.revision
        target = None if self._resting else next_floor(self._floor, newest, self._window, writes)
        connection = self._connection
        self._checkpointer.begin()
        try:
            if writes <= _MOST and target is None:  # one statement is a transaction of its own
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
        self._resting = False
        self._newest = newest
        self._census = census
        self._floor = target or self._floor
        self._checkpointer.ended(size + writes * _ROW_COST)
        return Commit(len(batch), writes, time.perf_counter() - began, self._floor)


def _rows(batch: list[Unit], census: int) -> tuple[list[object], int, int]:
    """The columns of all rows, one after the other, how many bytes of values are among them, and the census after them."""
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
