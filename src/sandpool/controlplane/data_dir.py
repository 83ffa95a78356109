"""The data directory of a local cluster: its paths, its format version, and the lock that lets one process use it at a time.

The process holds a kernel lock on the file `lock` as long as it lives, so a crash never leaves a stale lock.
A running cluster publishes its addresses in `running.json`, which is valid only while the lock is held.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from sandpool.base.errors import SandpoolError
from sandpool.kube.local_discovery import FLOCK, Running, lock_holder, read_running

FORMAT = 1
"""Version of the directory as a whole. It is raised when a release can no longer read what an older one wrote."""

_F_OFD_SETLK = 37
_PID_WIDTH = 20


class DataDirError(SandpoolError):
    """The data directory cannot be used; the message names it and says what to do."""


class DataDirInUse(DataDirError):
    """Another process holds the lock."""


@dataclass(frozen=True, slots=True)
class DataDir:
    """The paths in a data directory. Creating this value touches no file."""

    root: Path

    @property
    def store(self) -> Path:
        return self.root / "store.db"

    @property
    def access(self) -> Path:
        """Keys, certificates and tokens."""
        return self.root / "access"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def log(self) -> Path:
        """The log of a detached cluster."""
        return self.root / "sandpool.log"

    @property
    def audit(self) -> Path:
        """The router's audit log: who used which sandbox, and when."""
        return self.root / "audit.log"

    @property
    def node(self) -> Path:
        """The node's images, volumes and pod directories."""
        return self.root / "node"

    @property
    def incoming(self) -> Path:
        """Backups staged for a running cluster to restore."""
        return self.root / "incoming"

    @property
    def reserve(self) -> Path:
        """Preallocated disk space for deletes and status updates; the file has no content."""
        return self.root / "reserve"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def running(self) -> Path:
        return self.root / "running.json"

    @property
    def format(self) -> Path:
        return self.root / "format"

    def prepare(self) -> None:
        """Creates the directory if it is missing, with mode 0700, and checks its version."""
        try:
            self._make()
            if not self.format.exists():
                self._claim_fresh()
        except OSError as error:
            raise self._unusable(error) from error
        self.check_format()

    def _unusable(self, error: OSError) -> DataDirError:
        return DataDirError(
            f"data directory {self.root} cannot be used: {error.strerror}. Choose another with --data-dir."
        )

    def _make(self) -> None:
        """Creates missing directories and syncs their parents, so that they survive a power loss before any write is acknowledged."""
        missing = [directory for directory in (self.root, *self.root.parents) if not directory.exists()]
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in missing:
            _sync(directory.parent)
        self._make_private()

    def _make_private(self) -> None:
        """Takes write permission from other users: they could replace a file by a link, or a key or a cluster by their own."""
        found = self.root.stat()
        writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if found.st_uid == os.geteuid():
            if writable:
                self.root.chmod(stat.S_IMODE(found.st_mode) & ~writable)
        elif found.st_uid != 0 or writable:
            raise DataDirError(
                f"data directory {self.root} belongs to another user, who could change what is in it. "
                "Give it to yourself with chown, or choose another with --data-dir."
            )

    def _claim_fresh(self) -> None:
        """Writes the version before anything else, atomically: several processes may do this at once, or one may be killed in between."""
        foreign = [entry.name for entry in self.root.iterdir() if not _made_before_the_format(entry.name)]
        if foreign and not self.format.exists():
            raise DataDirError(
                f"{self.root} is not empty and not a data directory of sandpool (it holds {sorted(foreign)[0]!r}). "
                "Choose an empty or absent directory with --data-dir."
            )
        temporary = self.root / f"format.{os.getpid()}.new"
        temporary.write_text(f"{FORMAT}\n")
        _sync(temporary)
        temporary.replace(self.format)
        _sync(self.root)

    def check_format(self) -> None:
        try:
            found = int(self.format.read_text())
        except (OSError, ValueError) as error:
            raise DataDirError(
                f"{self.format} does not say which version {self.root} has. Is this a data directory of sandpool?"
            ) from error
        if found != FORMAT:
            raise DataDirError(
                f"data directory {self.root} has format {found}, this sandpool reads format {FORMAT}. "
                f"Use the release that wrote it, or choose another directory with --data-dir."
            )

    def take(self) -> Lock:
        """Takes the lock of this directory. Raises DataDirInUse, which names the process that holds it."""
        return Lock.take(self)

    def holder(self) -> int | None:
        """The pid of the process that holds the lock (0: not known yet); None if it is free."""
        try:
            return lock_holder(self.root)
        except OSError as error:
            raise self._unusable(error) from error

    def read_running(self) -> Running | None:
        """What the running cluster published; None if no cluster runs here, or it is still starting."""
        try:
            return read_running(self.root)
        except OSError as error:
            raise self._unusable(error) from error


def _made_before_the_format(name: str) -> bool:
    return name in {"lock", "sandpool.log"} or (name.startswith("format.") and name.endswith(".new"))


def in_use(directory: DataDir, holder: int) -> DataDirInUse:
    who = f"process {holder}" if holder else "another process"
    root = shlex.quote(str(directory.root))
    return DataDirInUse(
        f"data directory {directory.root} is in use by {who}. Stop it with `sandpool down --data-dir {root}`, "
        "or choose another directory with --data-dir."
    )


def _sync(path: Path) -> None:
    """Makes a file's content, or a directory's names, survive a power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@dataclass(slots=True)
class Lock:
    """The lock of a data directory: held until `release`, or until this process ends in any way."""

    directory: DataDir
    _fd: int

    @classmethod
    def take(cls, directory: DataDir) -> Self:
        try:
            fd = os.open(directory.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise directory._unusable(error) from error
        try:
            fcntl.fcntl(fd, _F_OFD_SETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            os.pwrite(fd, str(os.getpid()).ljust(_PID_WIDTH).encode(), 0)  # in place: a full disk has no block to spare
            directory.running.unlink(missing_ok=True)  # left by a process that crashed
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise in_use(directory, directory.holder() or 0) from error
            raise directory._unusable(error) from error
        return cls(directory, fd)

    def publish(self, running: Running) -> None:
        """Publishes what runs here, atomically."""
        temporary = self.directory.running.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(running))
        temporary.replace(self.directory.running)

    def release(self) -> None:
        self.directory.running.unlink(missing_ok=True)
        os.close(self._fd)
