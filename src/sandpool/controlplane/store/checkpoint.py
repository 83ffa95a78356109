"""Moving what is durable from the write-ahead log into the database file, beside the writer.

A thread with its own connection copies while the writer goes on, each time some bytes have gathered. It can never finish
while commits keep coming, so beyond a bound the writer itself copies the short rest between two commits and the log starts anew.

SQLite before 3.51.3 can lose commits when a checkpoint begins on a log that is wholly copied while a commit starts
the log anew (sqlite.org/wal.html, "the WAL-reset bug"). So after each checkpoint the next one by the thread waits until a
commit that began later has ended: then the log has started anew already, or holds something that is not copied.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from sandpool.base.preallocation import HeldRoom
from sandpool.controlplane.store.sqlite_file import PAGE, connect
from sandpool.telemetry.log import logger

log = logger(__name__)
_FRAME = PAGE + 24  # a page and its header in the write-ahead log


class Turns:
    """Whether a checkpoint may begin beside the writer. Each number is changed by one thread only."""

    def __init__(self) -> None:
        self._begun = 0  # commits
        self._ended = 0  # the newest one that succeeded
        self._mark = 0  # commits begun when the last checkpoint ended

    def commit_begins(self) -> None:
        self._begun += 1

    def commit_ended(self) -> None:
        self._ended = self._begun

    def checkpoint_ended(self) -> None:
        self._mark = self._begun

    @property
    def safe(self) -> bool:
        return self._ended > self._mark


class Checkpointer:
    """`begin` and `ended` are called by the writer's thread around each commit."""

    def __init__(self, path: Path, often: int, bound: int, room: HeldRoom) -> None:
        self._connection = connect(path, wait=0.0)
        self._room = room
        self._often = often
        self._bound = bound
        self._lock = threading.Lock()  # held by whoever runs a checkpoint
        self._wake = threading.Event()
        self._turns = Turns()
        self._stopping = False
        self._written = 0  # bytes since the last checkpoint, about
        self._overfull = False
        self._told = ""  # the failure that was logged last, until a checkpoint succeeds
        self._behind = False  # whether the log holds anything that is not copied
        self._thread = threading.Thread(target=self._run, name="sandpool-checkpoint", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        self._turns.commit_begins()

    def ended(self, size: int) -> None:
        self._turns.commit_ended()
        self._written += size
        self._behind = True
        if self._written >= self._often:
            self._wake.set()

    def relieve(self, connection: sqlite3.Connection, *, short: bool = False) -> None:
        """Between two commits of the writer: copies the rest if the log has grown too long, or the thread gets no turn. `short`: while
        room is short, always. Then the log begins anew instead of growing, and room that comes goes to the database, which must have it for
        that: a log that took it would hold still more that the database has no room for."""
        if self._overfull or self._written > self._bound or (short and self._behind and self._room.any):
            with self._lock:
                self._checkpoint(connection)
                self._overfull = False  # whatever came of it: a reader in the way must not stop the writer each time

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._stopping:
                return
            with self._lock:
                if self._turns.safe:
                    self._overfull = self._checkpoint(self._connection) * _FRAME > self._bound

    def _checkpoint(self, connection: sqlite3.Connection) -> int:
        """How many pages the log holds, copied ones included. Errors leave everything in the log, where it is safe."""
        self._written = 0
        try:
            _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._behind = copied < pages
            self._told = ""
            self._room.top_up()
            return int(pages)
        except sqlite3.Error as error:
            if str(error) != self._told:  # once, however long the disk is full
                self._told = str(error)
                log.warning("checkpoint failed, the write-ahead log grows", error=error)
            return 0
        finally:
            self._turns.checkpoint_ended()

    def close(self) -> None:
        self._stopping = True
        self._wake.set()
        self._thread.join()
        self._connection.close()
