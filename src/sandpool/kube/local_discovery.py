"""Finds the cluster that runs on this machine by its data directory.

The cluster writes where it listens to `running.json`. That file counts only while the kernel lock of the directory is held, so a crash never
leaves a stale one.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

import msgspec

# A lock of an open file description: held by the descriptor, not by whichever descriptor of this process is closed first
# (the trap of plain POSIX locks), and a question that takes no lock itself. The fcntl module does not name it.
_F_OFD_GETLK = 36
FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """What a running cluster publishes about itself."""

    pid: int
    api: str
    kubeconfig: str
    data_dir: str
    version: str
    started: str
    backend: str = "none"
    disk_reserve: int = 0  # reserved bytes of the data directory's file system
    router: str = ""  # its base address; empty where there is nothing to reach
    unheld: tuple[str, ...] = ()  # limits of pods that this machine cannot enforce: cpu, memory, pids, storage, io


def default_data_dir() -> Path:
    """$SANDPOOL_DATA_DIR, else `sandpool` under the user's data directory."""
    if chosen := os.environ.get("SANDPOOL_DATA_DIR"):
        return Path(chosen)
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "sandpool"


def lock_holder(root: Path) -> int | None:
    """The pid of the process that holds the lock of a data directory (0: not known yet); None if there is none. Raises OSError."""
    try:
        with (root / "lock").open("rb") as file:
            probe = struct.pack(FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            answer = struct.unpack(FLOCK, fcntl.fcntl(file, _F_OFD_GETLK, probe))
            written = file.read(20)
    except FileNotFoundError:
        return None
    if answer[0] == fcntl.F_UNLCK:
        return None
    return int(written) if written.strip().isdigit() else 0


def read_running(root: Path) -> Running | None:
    """What the cluster of a data directory has published; None if none runs (or it is still starting)."""
    if lock_holder(root) is None:
        return None
    try:
        return msgspec.json.decode((root / "running.json").read_bytes(), type=Running)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
