"""The files of one container's log: `<run>-<number>.log`, with growing numbers. Nothing is ever renamed, so a reader that has fallen
behind always knows which file comes next. Blocking, but for `Growth`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
from pathlib import Path

from sandpool.node.pods.logs.record import encode, unfinished

_NAME = re.compile(r"(\d+)-(\d+)\.log")


def numbers(directory: Path, run: int) -> list[int]:
    """The files of a run that are there, oldest first."""
    return sorted(number for its, number in _files(directory) if its == run)


def runs(directory: Path) -> list[int]:
    return sorted({run for run, _ in _files(directory)})


def forget_runs_before(directory: Path, run: int) -> None:
    for its, number in _files(directory):
        if its < run:
            path_of(directory, its, number).unlink(missing_ok=True)


def path_of(directory: Path, run: int, number: int) -> Path:
    return directory / f"{run}-{number}.log"


def _files(directory: Path) -> list[tuple[int, int]]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return [(int(found[1]), int(found[2])) for name in names if (found := _NAME.fullmatch(name))]


class LogWriter:
    """Writes one run. Its methods may be called from any thread."""

    def __init__(self, directory: Path, run: int, size: int, files: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._run = run
        self._size = size
        self._files = max(1, files)
        self._number = max(numbers(directory, run), default=0) + 1
        self._rests = {1: b"", 2: b""}
        self._lock = threading.Lock()
        self.file = self._open()
        self._written = 0
        self.lost = 0  # bytes that could not be written

    def write(self, time: bytes, stream: int, data: bytes) -> None:
        with self._lock:
            block, self._rests[stream] = encode(time, stream, self._rests[stream] + data)
            self._put(block)

    def finish(self, time: bytes) -> None:
        """Writes the rest of lines that never ended. Nothing may be written afterwards."""
        with self._lock:
            for stream, rest in self._rests.items():
                if rest:
                    self._put(unfinished(time, stream, rest))
            self._rests = {1: b"", 2: b""}
            self._close()

    def close(self) -> None:
        """Closes the file, without the rest of unfinished lines."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def _put(self, block: bytes) -> None:
        """Appends a block. On a full disk, log lines are lost; the container is not affected."""
        if self.file < 0 or not block:
            return
        rest = memoryview(block)
        try:
            if self._written >= self._size:
                self._rotate()
            while rest:
                rest = rest[os.write(self.file, rest) :]
        except OSError:
            self.lost += len(block)
            with contextlib.suppress(OSError):
                os.ftruncate(self.file, self._written)  # no half records
            return
        self._written += len(block)

    def _rotate(self) -> None:
        self._number += 1
        new = self._open()
        os.close(self.file)
        self.file, self._written = new, 0
        for number in numbers(self._directory, self._run)[: -self._files]:
            path_of(self._directory, self._run, number).unlink(missing_ok=True)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(path_of(self._directory, self._run, self._number), flags, 0o600)


class Growth:
    """Notifies readers that a log has grown, or is complete. On the event loop."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None
        self.over = False

    def grew(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    def end(self) -> None:
        self.over = True
        self.grew()

    def next(self) -> asyncio.Future[None]:
        """Done when the log grows again. Call it before reading, so that nothing is missed in between."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            if self.over:
                self._next.set_result(None)
        return self._next
