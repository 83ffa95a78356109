"""The audit log: one JSON line for each request, in a file of mode 0600 with a bounded size, or on standard output.

Lines are batched and written once per turn of the event loop. Lines that cannot be written without blocking are kept, up to a bound;
beyond it they are dropped, and the next line says how many. A line never has a header, a token or a query.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import select
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

import msgspec

from sandpool.base.clock import Clock, Timer
from sandpool.kube.errors import ConfigError
from sandpool.model.times import micro
from sandpool.telemetry.log import logger
from sandpool.wire.paths import PORT_URL

log = logger(__name__)

LONGEST_WORD: Final = 256
LONGEST_PATH: Final = 2048
_TOKEN: Final = re.compile(rb"v1\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}")
AGAIN: Final = 0.05
"""Seconds until a blocked write is tried again."""


class Entry(msgspec.Struct, frozen=True, rename={"from_": "from"}, omit_defaults=True):
    time: str
    id: str
    who: str
    from_: str
    method: str
    path: str
    status: int
    received: int
    sent: int
    milliseconds: float
    namespace: str = ""
    sandbox: str = ""
    port: int | None = None
    error: str = ""


class Audit(Protocol):
    def note(self, entry: Entry) -> None:
        """Never waits, never raises."""
        ...


class NoAudit:
    def note(self, entry: Entry) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Bounds:
    size: int = 64 << 20  # bytes of one file
    files: int = 5  # including the current one
    waiting: int = 1 << 20  # bytes that wait for a slow reader


def shown_path(path: bytes) -> str:
    """The path without its query, which may hold secrets, and without the token of a port's URL, wherever it stands."""
    plain = path.partition(b"?")[0].partition(b"#")[0]
    prefix = f"{PORT_URL}/".encode()
    if plain.startswith(prefix):
        plain = prefix + b"*" + b"".join(plain[len(prefix) :].partition(b"/")[1:])
    return _TOKEN.sub(b"*", plain)[:LONGEST_PATH].decode("latin-1")


def moment(now: datetime) -> str:
    return micro(now)


class AuditLog:
    """`path` None: standard output. Close it after the last request."""

    def __init__(self, path: Path | None, clock: Clock, bounds: Bounds = Bounds()) -> None:
        self._path = path
        self._clock = clock
        self._bounds = bounds
        try:
            self._descriptor = os.dup(1) if path is None else _open(path)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"{path or '-'}: no audit log ({why}); choose another --audit-log") from None
        self._size = 0 if path is None else os.fstat(self._descriptor).st_size
        self._encoder = msgspec.json.Encoder()
        self._lines: list[bytes] = []
        self._waits = 0
        self._rest = b""
        self._lost = 0
        self._planned: asyncio.Handle | Timer | None = None
        self._failing = False
        self._closed = False

    def note(self, entry: Entry) -> None:
        if self._closed:
            return
        line = self._encoder.encode(entry) + b"\n"
        if self._waits + len(line) > self._bounds.waiting:
            self._lost += 1
            return
        self._lines.append(line)
        self._waits += len(line)
        if self._planned is None:
            self._planned = asyncio.get_running_loop().call_soon(self._flush)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._planned is not None:
            self._planned.cancel()
            self._planned = None
        self._write_all()
        os.close(self._descriptor)

    def _flush(self) -> None:
        self._planned = None
        if not self._write_all():
            self._planned = self._clock.call_later(AGAIN, self._flush)

    def _write_all(self) -> bool:
        """Whether everything was written."""
        if self._lost and self._waits < self._bounds.waiting // 2:
            self._lines.append(b'{"time":"%s","lost":%d}\n' % (moment(self._clock.now()).encode(), self._lost))
            self._lost = 0
        data = self._rest + b"".join(self._lines)
        self._lines.clear()
        try:
            self._rest = self._write(data)
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.error("audit not written", path=str(self._path or "-"), error=str(error))
            self._failing = True
            self._lost += data.count(b"\n")
            self._rest = b""
        self._waits = len(self._rest)
        return not self._rest

    def _write(self, data: bytes) -> bytes:
        """Keeps the bytes that could not be written without blocking."""
        if self._path is None:
            return _written(self._descriptor, data)
        if self._size and self._size + len(data) > self._bounds.size:
            self._rotate(self._path)
        while data:
            count = os.write(self._descriptor, data)
            self._size += count
            data = data[count:]
        return b""

    def _rotate(self, path: Path) -> None:
        """Renames audit.log to audit.log.1, that to audit.log.2, and drops the oldest. The new file is created first."""
        new = path.with_name(f"{path.name}.new")
        fresh = _open(new)
        os.close(self._descriptor)
        self._descriptor, self._size = fresh, 0
        for number in range(self._bounds.files - 1, 0, -1):
            older = path.with_name(f"{path.name}.{number - 1}") if number > 1 else path
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number}"))
        new.replace(path)


def _written(descriptor: int, data: bytes) -> bytes:
    """Writes what fits without blocking and returns the rest. A writable pipe takes at least PIPE_BUF bytes."""
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    while data and room.poll(0):
        data = data[os.write(descriptor, data[: select.PIPE_BUF]) :]
    return data


def _open(path: Path) -> int:
    """Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it must be a regular file", str(path))
        os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
