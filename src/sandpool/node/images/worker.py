"""The process that unpacks layers, so that the event loop never waits for a disk and nothing hostile is parsed beside secrets.

Jobs come as lines of JSON on stdin, answers and progress go out as lines on stdout; its end is the end of stdin, or of the process
that started it. Standard library only: it starts in a few milliseconds.
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

from sandpool.node.images.streams import Measured, opened
from sandpool.node.images.tar import BadArchive, Readable, TarReader, TooMany, TooMuch
from sandpool.node.images.unpack import Rules, Unpacked, Unpacker, keeps_owners, opaque_attributes

RECORD, ROOT = "layer.json", "root"
_PR_SET_PDEATHSIG = 1
_MEMORY = 1 << 30
_TELL_EVERY = 0.25  # seconds
_REASONS = {TooMuch: "much", TooMany: "many"}


@dataclass(frozen=True, slots=True)
class Job:
    blob: str  # a file whose digest has been checked, if it has one
    target: str  # an empty folder
    diff_id: str
    most: int  # bytes that may come out
    entries: int
    path: int
    depth: int


class _Telling:
    """A file that tells now and then how far it has been read, and what has come of it."""

    def __init__(self, file: IO[bytes], size: int, done: Unpacked) -> None:
        self._file = file
        self._size = size
        self._done = done
        self._next = 0.0

    def read(self, size: int = -1, /) -> bytes:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _TELL_EVERY
            _say({"at": self._file.tell(), "of": self._size, "bytes": self._done.bytes, "files": self._done.files})
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)


def unpack(
    blob: IO[bytes], root: int, job: Job, owners: bool, opaque: tuple[str, ...], done: Unpacked | None = None
) -> Unpacked:
    """Raises BadArchive also if what comes out is not what the image's config promised. `done` grows meanwhile."""
    stream = Measured(opened(blob), job.most)
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
                done = unpack(_told(file, so_far), root, job, owners, opaque, so_far)
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


def _told(file: IO[bytes], done: Unpacked) -> IO[bytes]:
    telling: Readable = _Telling(file, os.fstat(file.fileno()).st_size, done)
    return telling  # type: ignore[return-value]  # read and seek is all that is used of it


def _write_record(folder: int, record: dict[str, object]) -> None:
    fd = os.open(RECORD, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(record, file)


def _sync_file_system(fd: int) -> None:
    """All files of a layer at once: one fsync for each would take minutes."""
    if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _say(words: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
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
        return  # whoever started this was gone before it could be tied to it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command that started this: it ends it in order
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
    for line in sys.stdin:
        _say(_answer(line))
