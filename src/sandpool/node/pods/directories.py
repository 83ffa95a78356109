"""The directories of pods on disk, and what an earlier process left of them.

    <directory>/<uid>/sandbox/             the runtime's: writable layers
                      logs/<container>/, messages/

A pod's directory is created before anything else of the pod, and moved to the trash once everything else is gone. So it also serves as
the journal: a later process finds every unfinished pod here, keeps its files for a while in case the pod is started again, and then
removes them. Everything but `LeftoverPods` blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.model.metadata import Uid
from sandpool.node.backend import BackendError
from sandpool.node.openat import remove_file
from sandpool.node.pods.threads import Threads
from sandpool.node.volumes.spec import Volumes
from sandpool.node.volumes.trash import Trash
from sandpool.telemetry.log import logger

LOGS, MESSAGES = "logs", "messages"
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,127}")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,252})")


@dataclass(frozen=True, slots=True)
class PodDirectory:
    path: Path
    trash: Trash

    @property
    def sandbox(self) -> Path:
        return self.path / "sandbox"

    def log(self, container: str) -> Path:
        return self.path / LOGS / _checked(container)

    def make(self) -> list[Path]:
        """Creates the directory. If it is left from an earlier start of the same pod, its logs stay. Like the next two, returns what it moved
        to the trash, to be removed in small steps (`Threads.empty`): a sandbox may have made millions of files."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        moved = self._move_away(self.sandbox)
        self.sandbox.mkdir(mode=0o700)
        return moved

    def keep_logs(self) -> list[Path]:
        """Moves everything but the logs to the trash."""
        return self._move_away(self.sandbox, self.path / MESSAGES)

    def remove(self) -> list[Path]:
        return self._move_away(self.path)

    def _move_away(self, *paths: Path) -> list[Path]:
        return [moved for path in paths if (moved := self.trash.take(path)) is not None]

    def message_path(self, container: str, attempt: int) -> Path:
        return self.path / MESSAGES / f"{_checked(container)}-{attempt}"

    def message(self, container: str, attempt: int) -> Path:
        """Creates the empty file for the termination message, which only its container can reach and write to."""
        path = self.message_path(container, attempt)
        self.forget_message(container, attempt - 1)  # left by a run whose exit was not observed
        path.parent.mkdir(exist_ok=True, mode=0o700)
        path.write_bytes(b"")
        path.chmod(0o666)
        return path

    def forget_message(self, container: str, attempt: int) -> None:
        """Truncates the file before removing it: a process that still holds the mounts of the ended container would keep its bytes, uncounted."""
        with contextlib.suppress(FileNotFoundError):
            remove_file(os.fspath(self.message_path(container, attempt)))


def _checked(container: str) -> str:
    if _NAME.fullmatch(container) is None:
        raise BackendError("InvalidName", f"{container!r} is not a valid container name")
    return container


class PodDirectories:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._trash = Trash(directory / ".trash")

    def of(self, uid: Uid) -> PodDirectory:
        if _UID.fullmatch(uid) is None:
            raise BackendError("InvalidUid", f"{uid!r} is not a valid pod uid")
        return PodDirectory(self._directory / uid, self._trash)

    def left(self, running: Collection[Uid] = ()) -> tuple[list[Uid], list[Path]]:
        """The pods of an earlier process, except those that still run, and directories in the trash that are still to be removed. The pods' sandboxes are moved there
        at once: they may hold millions of files, and a start must not wait for their removal."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        names = [name for name in sorted(os.listdir(self._directory)) if _UID.fullmatch(name)]
        found = [Uid(name) for name in names if name not in running]
        for uid in found:
            self._trash.take(self.of(uid).sandbox)
        return found, self._trash.leftovers()


def termination_message(path: Path, most: int) -> str:
    """The last bytes of a termination message, empty if it cannot be read. The file may be anything that the container put there: O_NONBLOCK
    keeps this from waiting for a FIFO or for the holder of a lease."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            return file.read(most).decode(errors="replace").strip("\0")
    except OSError:
        return ""


log = logger(__name__)


class LeftoverPods:
    def __init__(self, directories: PodDirectories, volumes: Volumes, clock: Clock, threads: Threads) -> None:
        self._directories = directories
        self._volumes = volumes
        self._clock = clock
        self._threads = threads
        self._uids: set[Uid] = set()
        self._removing = Uid("")
        self._task: asyncio.Task[None] | None = None

    async def find(self, kept: float, running: Collection[Uid] = ()) -> None:
        """Schedules the removal of everything found now, after `kept` seconds. OSError if the directory cannot be used."""
        uids, moved = await self._threads.run(partial(self._directories.left, frozenset(running)))
        self._uids = set(uids)
        if uids or moved:
            log.info("found pods of an earlier process", pods=len(uids))
            self._task = asyncio.create_task(self._remove(kept, moved))

    async def take(self, uid: Uid) -> None:
        """Keeps the files of this pod, which is started again. If they are just being removed, returns after that."""
        self._uids.discard(uid)
        if uid == self._removing and self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _remove(self, kept: float, moved: Sequence[Path]) -> None:
        for directory in moved:
            try:
                await self._threads.empty([directory])
            except OSError as error:
                log.warning("trash not emptied; the next start tries again", error=str(error))
        await self._clock.sleep(kept)
        while self._uids:
            self._removing = uid = self._uids.pop()
            try:
                await self._volumes.remove(uid)
                await self._threads.empty(await self._threads.run(self._directories.of(uid).remove))
            except (NodeError, OSError) as error:
                log.warning(
                    "files of a pod of an earlier process not removed; the next start tries again",
                    uid=uid,
                    error=str(error),
                )
        self._removing = Uid("")
