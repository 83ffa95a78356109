"""The files of one container's log: `<run>-<number>.log`, the number growing. Nothing is ever renamed, so a reader that has
fallen behind always knows which file comes next. Blocking."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from pathlib import Path

from sandpool.node.pods.logs.record import encode, unfinished

_NAME = re.compile(r"(\d+)-(\d+)\.log")


def numbers(folder: Path, run: int) -> list[int]:
    """The files of a run that are there, oldest first."""
    return sorted(number for its, number in _files(folder) if its == run)


def runs(folder: Path) -> list[int]:
    return sorted({run for run, _ in _files(folder)})


def forget_runs_before(folder: Path, run: int) -> None:
    for its, number in _files(folder):
        if its < run:
            path_of(folder, its, number).unlink(missing_ok=True)


def path_of(folder: Path, run: int, number: int) -> Path:
    return folder / f"{run}-{number}.log"


def _files(folder: Path) -> list[tuple[int, int]]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [(int(found[1]), int(found[2])) for name in names if (found := _NAME.fullmatch(name))]


class LogWriter:
    """Writes one run. Its methods may be called from any thread."""

    def __init__(self, folder: Path, run: int, size: int, files: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._run = run
        self._size = size
        self._files = max(1, files)
        self._number = max(numbers(folder, run), default=0) + 1
        self._rests = {1: b"", 2: b""}
        self._lock = threading.Lock()
        self._file = self._open()
        self._written = 0
        self.lost = 0  # bytes that the disk did not take

    def write(self, time: bytes, stream: int, data: bytes) -> None:
        with self._lock:
            block, self._rests[stream] = encode(time, stream, self._rests[stream] + data)
            self._put(block)

    def finish(self, time: bytes) -> None:
        """What is left of lines that never ended. Nothing may be written afterwards."""
        with self._lock:
            for stream, rest in self._rests.items():
                if rest:
                    self._put(unfinished(time, stream, rest))
            self._rests = {1: b"", 2: b""}
            self._close()

    def close(self) -> None:
        """Without what is left."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _put(self, block: bytes) -> None:
        """A disk that is full costs log lines, never the container."""
        if self._file < 0 or not block:
            return
        rest = memoryview(block)
        try:
            if self._written >= self._size:
                self._rotate()
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            self.lost += len(block)
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._written)  # no half records
            return
        self._written += len(block)

    def _rotate(self) -> None:
        self._number += 1
        new = self._open()
        os.close(self._file)
        self._file, self._written = new, 0
        for number in numbers(self._folder, self._run)[: -self._files]:
            path_of(self._folder, self._run, number).unlink(missing_ok=True)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(path_of(self._folder, self._run, self._number), flags, 0o600)
