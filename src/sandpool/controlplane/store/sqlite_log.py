"""The durable log: one SQLite file, written by one thread. This is the loop's side of that thread.

The writes of one turn of the loop are handed over together, so waking the thread and the commit are shared by all of them.
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
from sandpool.controlplane.store.opening import Terms, open_store
from sandpool.controlplane.store.writer import Bounds, Resume, Shortage, Stop, Writer
from sandpool.telemetry.log import logger

log = logger(__name__)

_HEADSTART = 64
"""Writes of one turn of the loop after which the thread may begin: in a burst it commits while the rest is still decided."""

_PASSING = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_SHMSIZE,  # no room for the index of the write-ahead log
    }
)
"""Failures after which the next write is tried: nothing of the failed one reached the log's valid part. After a failed sync
the kernel may have dropped what it could not write, so such a file is not written again before it is opened anew."""


class SqliteLog:
    def __init__(self, path: Path, bounds: Bounds = Bounds(), terms: Terms = Terms()) -> None:
        self._path = path
        self._bounds = bounds
        self._terms = terms
        self._turn: list[Unit] = []
        self._refused: StoreFailed | None = None
        self._told = ""  # the failure that was logged last, until a commit succeeds
        self._sink: Sink
        self._loop: asyncio.AbstractEventLoop
        self._connection: sqlite3.Connection
        self._checkpointer: Checkpointer
        self._marker: Marker
        self._room: HeldRoom
        self._writer: Writer
        self._thread: threading.Thread
        self._stopped: asyncio.Future[None]

    async def open(self, sink: Sink) -> Loaded:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._stopped = self._loop.create_future()
        return await asyncio.to_thread(self._open)

    def _open(self) -> Loaded:
        connection, loaded = open_store(self._path, self._bounds.wait, self._bounds.window, self._terms)
        with ExitStack() as undo:
            undo.callback(connection.close)
            room = HeldRoom(self._path, self._bounds.room)
            undo.callback(room.close)
            marker = Marker(self._path, loaded.identity)
            undo.callback(marker.close)
            marker.acknowledge(loaded.revision)
            bounds = self._bounds
            most = min(
                bounds.wal, bounds.room or bounds.wal
            )  # what the database has room for, also if nothing else has any
            checkpointer = Checkpointer(self._path, min(bounds.checkpoint, most), most, room)
            undo.pop_all()
        self._connection, self._checkpointer = connection, checkpointer
        self._marker, self._room = marker, room
        self._writer = Writer(connection, checkpointer, self._bounds, loaded, marker.acknowledge)
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
            self._writer.queue.put(turn)

    def room_is_short(self, there: bool) -> None:
        """Whether the disk is full. A commit that finds no room shows that as well; that there is room again must be told."""
        self._writer.queue.put(Shortage(there))

    async def close(self) -> None:
        self._hand_over()
        self._writer.queue.put(Stop())
        await asyncio.shield(self._stopped)
        self._thread.join()

    # On the writer's thread.

    def _run(self) -> None:
        try:
            self._writer.run(self._committed, self._failed)
        except Exception as error:  # such as no memory: nobody would ever hear of what waits
            self._failed(error)
        finally:
            self._checkpointer.close()
            self._marker.close()
            self._connection.close()  # the last one out copies the rest and removes the write-ahead log
            self._room.close()
            self._post(self._stop)

    def _committed(self, commit: Commit) -> None:
        self._told = ""
        self._post(self._sink.committed, commit)

    def _failed(self, error: Exception) -> None:
        self._post(self._fail, error)

    def _post(self, callback: object, *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)  # type: ignore[arg-type]
        except RuntimeError:  # the loop ended without closing us: nobody is left to be told
            log.debug("the loop is gone")

    # On the loop's thread again.

    def _fail(self, error: Exception) -> None:
        """Nothing handed over up to now will be committed; what is appended from now on is new."""
        code = getattr(error, "sqlite_errorcode", None)
        failure = StoreFailed(f"{self._path}: a commit failed ({str(error) or type(error).__name__}); {_advice(code)}")
        failure.__cause__ = error
        if str(error) != self._told:  # on a full disk every commit fails, and the log may be on that disk
            self._told = str(error)
            passing = code in _PASSING  # the machine's state, which says all: no traceback adds to it
            log.error("commit failed", exc=None if passing else error, path=self._path, error=str(error))
        self._turn.clear()
        if code in _PASSING:
            self._writer.queue.put(Resume())
        else:
            self._refused = failure
        self._sink.failed(failure)

    def _stop(self) -> None:
        if not self._stopped.done():
            self._stopped.set_result(None)


def _advice(code: int | None) -> str:
    if code == sqlite3.SQLITE_FULL:
        return "make room on the disk, then write again"
    if code in _PASSING:
        return "write again once the cause is gone"
    if code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY or code == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
        return "another process wrote to this file: stop it, then restart"
    return "no more writes are taken: check the disk, then restart"
