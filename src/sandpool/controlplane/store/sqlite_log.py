"""The durable log: one SQLite file, written by one thread. This module is the event loop's side; writer.py is the thread's.

All writes of one turn of the loop are handed to the thread together, so that they share one wake-up and one commit.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import ExitStack
from pathlib import Path

from sandpool.base.preallocation import HeldRoom
from sandpool.controlplane.store.checkpoint import Checkpointer
from sandpool.controlplane.store.errors import StoreFailed
from sandpool.controlplane.store.log import Commit, Loaded, Sink, Unit
from sandpool.controlplane.store.marker import Marker
from sandpool.controlplane.store.opening import OpenOptions, open_store
from sandpool.controlplane.store.writer import Bounds, Resume, Shortage, Stop, Writer
from sandpool.telemetry.log import logger

log = logger(__name__)

_HEADSTART = 64
"""After this many writes in one turn of the loop the thread starts: in a burst it commits while later writes are still being decided."""

_PASSING = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_SHMSIZE,  # no room for the index of the write-ahead log
    }
)
"""Failures after which later writes are tried: nothing of the failed commit reached the valid part of the log. A failed sync is not
among them: the kernel may have dropped the pages, so the file is not written again until it is reopened."""


class SqliteLog:
    """A Log in one SQLite file; see the module."""

    def __init__(self, path: Path, bounds: Bounds = Bounds(), options: OpenOptions = OpenOptions()) -> None:
        self._path = path
        self._bounds = bounds
        self._options = options
        self._turn: list[Unit] = []
        self._refused: StoreFailed | None = None
        self._logged = ""  # the last failure that was logged, until a commit succeeds
        self._sink: Sink
        self._loop: asyncio.AbstractEventLoop
        self.connection: sqlite3.Connection
        self._checkpointer: Checkpointer
        self._marker: Marker
        self._room: HeldRoom
        self.writer: Writer
        self._thread: threading.Thread
        self._stopped: asyncio.Future[None]

    async def open(self, sink: Sink) -> Loaded:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._stopped = self._loop.create_future()
        return await asyncio.to_thread(self._open)

    def _open(self) -> Loaded:
        connection, loaded = open_store(self._path, self._bounds.wait, self._bounds.window, self._options)
        with ExitStack() as undo:
            undo.callback(connection.close)
            room = HeldRoom(self._path, self._bounds.room)
            undo.callback(room.close)
            marker = Marker(self._path, loaded.identity)
            undo.callback(marker.close)
            marker.acknowledge(loaded.revision)
            bounds = self._bounds
            # The log must fit into the space that the database holds in advance, for when the disk is full.
            most = min(bounds.wal, bounds.room or bounds.wal)
            checkpointer = Checkpointer(self._path, min(bounds.checkpoint, most), most, room)
            undo.pop_all()
        self.connection, self._checkpointer = connection, checkpointer
        self._marker, self._room = marker, room
        self.writer = Writer(connection, checkpointer, self._bounds, loaded, marker.acknowledge)
        self._thread = threading.Thread(target=self._run, name="sandpool-writer", daemon=True)
        self._thread.start()
        return loaded

    def append(self, unit: Unit) -> None:
        if self._refused is not None:
            raise StoreFailed(str(self._refused)) from self._refused.__cause__
        if not self._turn:
            self._loop.call_soon(self._hand_over)
        self._turn.append(unit)
        if len(self._turn) >= _HEADSTART:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._turn:
            turn, self._turn = self._turn, []
            self.writer.queue.put(turn)

    def room_is_short(self, there: bool) -> None:
        """Reports whether the disk is full. A commit that finds no space detects that by itself; the end of a shortage must be reported here."""
        self.writer.queue.put(Shortage(there))

    async def close(self) -> None:
        self._hand_over()
        self.writer.queue.put(Stop())
        await asyncio.shield(self._stopped)
        self._thread.join()

    # On the writer's thread.

    def _run(self) -> None:
        try:
            self.writer.run(self._committed, self._failed)
        except Exception as error:  # for example MemoryError: otherwise callers would wait forever
            self._failed(error)
        finally:
            self._checkpointer.close()
            self._marker.close()
            self.connection.close()  # closing the last connection checkpoints and removes the write-ahead log
            self._room.close()
            self._post(self._stop)

    def _committed(self, commit: Commit) -> None:
        self._logged = ""
        self._post(self._sink.committed, commit)

    def _failed(self, error: Exception) -> None:
        self._post(self._fail, error)

    def _post(self, callback: object, *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)  # type: ignore[arg-type]
        except RuntimeError:  # the loop ended without closing the log: nothing is left to notify
            log.debug("the loop is gone")

    # On the loop's thread.

    def _fail(self, error: Exception) -> None:
        """Fails everything that was handed over. Later appends are accepted again, unless the failure is permanent."""
        code = getattr(error, "sqlite_errorcode", None)
        failure = StoreFailed(f"{self._path}: a commit failed ({str(error) or type(error).__name__}); {_advice(code)}")
        failure.__cause__ = error
        if str(error) != self._logged:  # on a full disk every commit fails, and the log may be on that disk
            self._logged = str(error)
            passing = code in _PASSING  # explained by the state of the machine: no traceback
            log.error("commit failed", exc=None if passing else error, path=self._path, error=str(error))
        self._turn.clear()
        if code in _PASSING:
            self.writer.queue.put(Resume())
        else:
            self._refused = failure
        self._sink.failed(failure)

    def _stop(self) -> None:
        if not self._stopped.done():
            self._stopped.set_result(None)


def _advice(code: int | None) -> str:
    if code == sqlite3.SQLITE_FULL:
        return "free space on the disk, then write again"
    if code in _PASSING:
        return "write again once the cause is gone"
    if code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY or code == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
        return "another process wrote to this file: stop it, then restart"
    return "no more writes are taken: check the disk, then restart"
