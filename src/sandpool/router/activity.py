"""Records when a sandbox was last used, as its annotation `sandpool.dev/last-activity`, so that idle ones can be found and deleted.

Written in the background, a moment after the first use and at most once per interval: no request waits for it, and a short-lived
sandbox costs no write. A stream counts as a use while bytes flow. No controller reads the annotation, so a write wakes none
(tests/integration/router/test_activity.py). What cannot be written now is written after the next use.
"""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sandpool.base.clock import Clock
from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Api
from sandpool.kube.errors import Conflict, Invalid, NotFound
from sandpool.model.kinds import SANDBOXES
from sandpool.model.metadata import Key, Uid
from sandpool.model.patches import Patch, merge_patch
from sandpool.model.times import seconds
from sandpool.router.ports import Target
from sandpool.router.values import Admitted
from sandpool.telemetry.log import logger

log = logger(__name__)

LAST_ACTIVITY: Final = "sandpool.dev/last-activity"


@dataclass(frozen=True, slots=True)
class Rhythm:
    delay: float = 5.0  # seconds from a use to its write: a sandbox that ends sooner is never written
    interval: float = 60.0  # between two writes for one sandbox
    look: float = 15.0  # between two checks whether bytes flow in streams
    most: int = 10_000  # sandboxes whose write is due; further ones are skipped this time


@dataclass(slots=True)
class _Use:
    key: Key
    last: datetime


@dataclass(slots=True)
class _Stream:
    admitted: Admitted
    carried: int


class Activity:
    """Run `run` beside the router."""

    def __init__(self, api: Api, clock: Clock, rhythm: Rhythm = Rhythm()) -> None:
        self._api = api
        self._clock = clock
        self._rhythm = rhythm
        self._waiting: dict[Uid, _Use] = {}
        self._due: list[tuple[float, Uid]] = []
        self._written: dict[Uid, float] = {}  # the oldest first
        self._streams: dict[int, _Stream] = {}
        self._news = asyncio.Event()
        self._failing = False

    def used(self, target: Target) -> None:
        """Records a use now. Never waits."""
        use = self._waiting.get(target.uid)
        if use is not None:
            use.last = self._clock.now()
            return
        if len(self._waiting) >= self._rhythm.most:
            return
        now = self._clock.monotonic()
        due = max(now + self._rhythm.delay, self._written.get(target.uid, float("-inf")) + self._rhythm.interval)
        self._waiting[target.uid] = _Use(Key(target.namespace, target.name), self._clock.now())
        heapq.heappush(self._due, (due, target.uid))
        self._news.set()

    def begins(self, admitted: Admitted) -> None:
        self.used(admitted.target)
        self._streams[id(admitted)] = _Stream(admitted, 0)

    def ends(self, admitted: Admitted) -> None:
        if self._streams.pop(id(admitted), None) is not None:
            self.used(admitted.target)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(self._look())
            both.create_task(self._write_due())

    async def _write_due(self) -> None:
        while True:
            self._news.clear()
            while self._due and self._due[0][0] <= self._clock.monotonic():
                uid = heapq.heappop(self._due)[1]
                await self._write(uid, self._waiting.pop(uid))
            await self._pause()

    async def _pause(self) -> None:
        """Sleeps until the next write is due, or until there is a first one."""
        timer = None
        if self._due:
            timer = self._clock.call_later(max(0.0, self._due[0][0] - self._clock.monotonic()), self._news.set)
        try:
            await self._news.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _look(self) -> None:
        """Periodically counts streams in which bytes flowed since the last check as a use."""
        while True:
            await self._clock.sleep(self._rhythm.look)
            for stream in self._streams.values():
                carried = stream.admitted.flow.count()
                if carried != stream.carried:
                    stream.carried = carried
                    self.used(stream.admitted.target)

    async def _write(self, uid: Uid, use: _Use) -> None:
        now = self._clock.monotonic()
        while self._written and next(iter(self._written.values())) + self._rhythm.interval <= now:
            del self._written[next(iter(self._written))]
        self._written.pop(uid, None)
        self._written[uid] = now
        try:
            await self._api.patch(SANDBOXES, use.key.name, activity_patch(uid, use.last), use.key.namespace)
            self._failing = False
        except (NotFound, Invalid, Conflict):
            pass  # it is gone, or another one has its name
        except SandpoolError as error:
            if not self._failing:  # logged once, until it works again
                log.warning("activity not written", sandbox=str(use.key), error=f"{type(error).__name__}: {error}")
            self._failing = True


def activity_patch(uid: Uid, last: datetime) -> Patch:
    """A patch of exactly this sandbox: the server refuses another uid."""
    return merge_patch({"metadata": {"uid": str(uid), "annotations": {LAST_ACTIVITY: seconds(last)}}})
