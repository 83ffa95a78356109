"""Checkpoints: copies committed pages from the write-ahead log into the database file, in a thread beside the writer.

The thread has its own connection and runs a checkpoint whenever enough bytes were written. While commits keep coming it can never copy
everything, so above a bound the writer itself copies the rest between two commits, and SQLite restarts the log from its beginning.

SQLite before 3.51.3 can lose commits when a checkpoint begins on a fully copied log while a commit restarts that log (sqlite.org/wal.html,
"the WAL-reset bug"). So after each checkpoint, the thread's next one waits until a commit that began later has ended: then the log was either
restarted already, or holds something that is not copied yet.
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
    """Decides whether the thread may begin a checkpoint (see the module). Each number is changed by one thread at a time."""

    def __init__(self) -> None:
        self._begun = 0  # number of commits begun
        self._ended = 0  # number of the newest commit that succeeded
        self._mark = 0  # number of commits begun when the last checkpoint ended

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
    """The checkpoint thread. The writer's thread calls `begin` and `ended` around each commit."""

    def __init__(self, path: Path, often: int, bound: int, room: HeldRoom) -> None:
        self._connection = connect(path, wait=0.0)
        self._room = room
        self._often = often
        self._bound = bound
        self._lock = threading.Lock()  # held during a checkpoint
        self._wake = threading.Event()
        self._turns = Turns()
        self._stopping = False
        self._written = 0  # bytes since the last checkpoint, approximately
        self._overfull = False
        self._logged = ""  # the last failure that was logged, until a checkpoint succeeds
        self._behind = False  # whether the log holds pages that are not copied
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
        """Called by the writer between two commits: copies the rest if the log has grown too long. With `short` (the disk is nearly full) it
        always copies what it can, so that the log restarts instead of growing. Free space must go to the database first: a log that took it
        would only hold more pages for which the database has no space."""
        if self._overfull or self._written > self._bound or (short and self._behind and self._room.any):
            with self._lock:
                self._checkpoint(connection)
                self._overfull = False  # even if it failed: a reader in the way must not delay every commit

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
        """Runs a checkpoint. Returns the number of pages in the log, including copied ones. After an error everything is still safe in the log."""
        self._written = 0
        try:
            _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._behind = copied < pages
            self._logged = ""
            self._room.top_up()
            return int(pages)
        except sqlite3.Error as error:
            if str(error) != self._logged:  # once, however long the disk is full
                self._logged = str(error)
                log.warning("checkpoint failed, the write-ahead log grows", error=error)
            return 0
        finally:
            self._turns.checkpoint_ended()

    def close(self) -> None:
        self._stopping = True
        self._wake.set()
        self._thread.join()
        self._connection.close()
