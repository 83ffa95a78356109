"""Where the pods of this backend keep what is theirs, and how a later process finds it.

    <folder>/<uid>/sandbox/             the runtime's: writable layers
                   logs/<container>/, messages/

A pod's folder is made before anything else of it, and is moved away at once when all else is gone: so it is the journal, too.
Everything here blocks.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from sandpool.model.metadata import Uid
from sandpool.node.backend import BackendError
from sandpool.node.openat import discard
from sandpool.node.volumes.removal import Trash, empty

LOGS, MESSAGES = "logs", "messages"
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,127}")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,252})")


@dataclass(frozen=True, slots=True)
class PodFolder:
    path: Path
    trash: Trash

    @property
    def sandbox(self) -> Path:
        return self.path / "sandbox"

    def log(self, container: str) -> Path:
        return self.path / LOGS / _checked(container)

    def make(self) -> None:
        """May be left from the same pod: its logs stay."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.remove_sandbox()
        self.sandbox.mkdir(mode=0o700)

    def remove_sandbox(self) -> None:
        _remove(self.trash, self.sandbox)

    def keep_logs(self) -> None:
        """Removes everything else."""
        for path in (self.sandbox, self.path / MESSAGES):
            _remove(self.trash, path)

    def message_path(self, container: str, attempt: int) -> Path:
        return self.path / MESSAGES / f"{_checked(container)}-{attempt}"

    def message(self, container: str, attempt: int) -> Path:
        """An empty file that anybody may write to who is given it; nobody else reaches it."""
        path = self.message_path(container, attempt)
        self.forget_message(container, attempt - 1)  # of one whose end nobody saw
        path.parent.mkdir(exist_ok=True, mode=0o700)
        path.write_bytes(b"")
        path.chmod(0o666)
        return path

    def forget_message(self, container: str, attempt: int) -> None:
        """Emptied first: whoever holds the mounts of the container that has ended keeps the file, and nobody would count it."""
        with contextlib.suppress(FileNotFoundError):
            discard(os.fspath(self.message_path(container, attempt)))

    def remove(self) -> None:
        _remove(self.trash, self.path)


def _remove(trash: Trash, path: Path) -> None:
    """Whatever a sandbox made of it."""
    moved = trash.take(path)
    if moved is not None:
        empty(moved, lambda: False)


def _checked(container: str) -> str:
    if _NAME.fullmatch(container) is None:
        raise BackendError("InvalidName", f"{container!r} is no name of a container")
    return container


class Folders:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trash = Trash(folder / ".trash")

    def of(self, uid: Uid) -> PodFolder:
        if _UID.fullmatch(uid) is None:
            raise BackendError("InvalidUid", f"{uid!r} is no uid of a pod")
        return PodFolder(self._folder / uid, self._trash)

    def left(self) -> tuple[list[Uid], list[Path]]:
        """Pods of an earlier process, and what is to be removed: removals that it began, and the sandboxes of these pods, which are moved
        away at once. They may hold millions of files, and whoever starts does not wait for those."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = [Uid(name) for name in sorted(os.listdir(self._folder)) if _UID.fullmatch(name)]
        for uid in found:
            self._trash.take(self.of(uid).sandbox)
        return found, self._trash.left()


def last_words(path: Path, most: int) -> str:
    """The end of what a container wrote as its last message. It may have put anything there. Waits for nobody who has a lease on it."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            return file.read(most).decode(errors="replace").strip("\0")
    except OSError:
        return ""
