"""The worker process that unpacks layers, so that the event loop never waits for a disk and no hostile archive is parsed in a process
with secrets.

It reads jobs as lines of JSON from stdin, and writes progress and results as lines to stdout. It exits when stdin ends or when its parent
exits. Standard library only, so that it starts in a few milliseconds.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import sys
import time
from dataclasses import asdict, dataclass
from typing import IO

from sandpool.node.images.tar import BadArchive, DigestReader, Readable, TarReader, TooMany, TooMuch, decompressed
from sandpool.node.images.unpack import Rules, Unpacked, Unpacker, keeps_owners, opaque_attributes

RECORD, ROOT = "layer.json", "root"
_PR_SET_PDEATHSIG = 1
_MEMORY = 1 << 30
_PROGRESS_INTERVAL = 0.25  # seconds
_REASONS = {TooMuch: "much", TooMany: "many"}


@dataclass(frozen=True, slots=True)
class Job:
    """One layer to unpack."""

    blob: str  # a file whose digest has been checked, if it has one
    target: str  # an empty directory
    diff_id: str
    most: int  # maximum bytes of the uncompressed layer
    entries: int
    path: int
    depth: int


class _ProgressReader:
    """A file that reports at intervals how far it has been read and what was unpacked so far."""

    def __init__(self, file: IO[bytes], size: int, done: Unpacked) -> None:
        self._file = file
        self._size = size
        self._done = done
        self._next = 0.0

    def read(self, size: int = -1, /) -> bytes:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PROGRESS_INTERVAL
            _send({"at": self._file.tell(), "of": self._size, "bytes": self._done.bytes, "files": self._done.files})
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)


def unpack(
    blob: IO[bytes], root: int, job: Job, owners: bool, opaque: tuple[str, ...], done: Unpacked | None = None
) -> Unpacked:
    """Unpacks a layer. Raises BadArchive, also if its digest is not the one in the image's config. Updates `done` as it goes."""
    stream = DigestReader(decompressed(blob), job.most)
    done = Unpacker(root, Rules(owners, opaque, job.entries, job.path, job.depth), done).unpack(TarReader(stream))
    stream.drain()
    if job.diff_id and stream.digest != job.diff_id:
        raise BadArchive(f"unpacked, its digest is {stream.digest} where the image's config says {job.diff_id}")
    return done


def carry_out(job: Job) -> dict[str, object]:
    owners = keeps_owners()
    target = os.open(job.target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        opaque = opaque_attributes(target)
        os.mkdir(ROOT, 0o700, dir_fd=target)
        root = os.open(ROOT, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=target)
        try:
            with open(job.blob, "rb") as file:
                so_far = Unpacked()
                done = unpack(_with_progress(file, so_far), root, job, owners, opaque, so_far)
        finally:
            os.close(root)
        record = {
            "diff_id": job.diff_id,
            "owners": owners,
            "whiteouts": "device",
            "opaque": opaque,
            **asdict(done),
        }
        _write_record(target, record)
        _sync_file_system(target)
    finally:
        os.close(target)
    return record


def _with_progress(file: IO[bytes], done: Unpacked) -> IO[bytes]:
    reader: Readable = _ProgressReader(file, os.fstat(file.fileno()).st_size, done)
    return reader  # type: ignore[return-value]  # only read and seek are used


def _write_record(directory: int, record: dict[str, object]) -> None:
    fd = os.open(RECORD, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
    with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(record, file)


def _sync_file_system(fd: int) -> None:
    """Syncs all files of a layer at once: an fsync for each would take minutes."""
    if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _send(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _answer(line: str) -> dict[str, object]:
    try:
        carried = carry_out(Job(**json.loads(line)))
        return {"done": {key: carried[key] for key in ("files", "bytes", "skipped")}}
    except BadArchive as error:
        return {"failed": _REASONS.get(type(error), "bad"), "message": str(error)}
    except MemoryError:
        return {"failed": "bad", "message": "it needs more memory to unpack than a layer may"}
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return {"failed": "full" if full else "system", "message": error.strerror or str(error)}


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if str(os.getppid()) != sys.argv[1]:
        return  # the parent exited before PDEATHSIG was set
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the parent ends this process in order
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
    for line in sys.stdin:
        _send(_answer(line))
