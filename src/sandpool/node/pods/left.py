"""What pods of an earlier process wrote: kept for a while, for those that are started again, and then removed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.model.metadata import Uid
from sandpool.node.pods.folders import Folders
from sandpool.node.pods.threads import Threads
from sandpool.node.volumes.port import Volumes
from sandpool.node.volumes.removal import empty
from sandpool.node.volumes.store import Steps
from sandpool.telemetry.log import logger

log = logger(__name__)
_STEPS = 1000  # files removed before this can be closed


class Left:
    def __init__(self, folders: Folders, volumes: Volumes, clock: Clock, threads: Threads) -> None:
        self._folders = folders
        self._volumes = volumes
        self._clock = clock
        self._threads = threads
        self._uids: set[Uid] = set()
        self._removing = Uid("")
        self._task: asyncio.Task[None] | None = None

    async def find(self, kept: float) -> None:
        """Everything that is there now is removed after so long. OSError if the folder cannot be used."""
        uids, moved = await self._threads.run(self._folders.left)
        self._uids = set(uids)
        if uids or moved:
            log.info("found what an earlier process left", pods=len(uids))
            self._task = asyncio.create_task(self._remove(kept, moved))

    async def take(self, uid: Uid) -> None:
        """It is started again: what is there is its own. One that is just being removed is gone when this returns."""
        self._uids.discard(uid)
        if uid == self._removing and self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _remove(self, kept: float, moved: Sequence[Path]) -> None:
        for folder in moved:
            try:
                while not await self._threads.run(partial(empty, folder, Steps(_STEPS))):
                    pass
            except OSError as error:
                log.warning("what was moved away is not removed; the next start tries again", error=str(error))
        await self._clock.sleep(kept)
        while self._uids:
            self._removing = uid = self._uids.pop()
            try:
                await self._volumes.remove(uid)
                await self._threads.run(self._folders.of(uid).remove)
            except (NodeError, OSError) as error:
                log.warning("what a pod left is not removed; the next start tries again", uid=uid, error=str(error))
        self._removing = Uid("")
