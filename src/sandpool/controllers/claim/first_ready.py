"""Writes when claims that were served in the write that created them were first Ready: a moment later, while nobody waits.

A client with a thread that watches and another one that makes claims may take up the news that a claim is Ready before the answer to its
POST, although that was sent first. This write is a second event that shows the claim as Ready, when the answer has surely been read. It is no
reconcile: one follows only if it fails. Losing what is noted here loses the moment and nothing else; see annotations.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from sandpool.base.clock import Clock
from sandpool.controllers.claim.annotations import annotations_patch
from sandpool.controllers.claim.memory import Memory
from sandpool.controllers.claim.observe import Observer
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.publish import Publisher
from sandpool.controllers.claim.view import bound_name
from sandpool.kube.lanes import Lane, lane_of
from sandpool.loop.controller import Controller
from sandpool.loop.queue import Priority
from sandpool.loop.rush import Rush
from sandpool.model.claim import SandboxClaim
from sandpool.model.metadata import Key, Uid
from sandpool.telemetry.log import bind

AT_ONCE = 16
"""Writes in flight: enough to share a commit, few enough to be soon over when somebody comes."""
PATIENCE = 2.0
"""Seconds for which they rest while somebody waits for a claim; as long as the second lane of a queue."""


class _Due(NamedTuple):
    at: float
    key: Key
    uid: Uid


class FirstReady:
    """Run `run`. Nothing is noted while annotations are switched off."""

    def __init__(
        self,
        observer: Observer,
        memory: Memory,
        publisher: Publisher,
        loop: Controller[Key],
        clock: Clock,
        options: Options,
    ) -> None:
        self._observer = observer
        self._memory = memory
        self._publisher = publisher
        self._loop = loop
        self._clock = clock
        self._options = options
        self._rush = Rush()
        self._due: deque[_Due] = deque()
        self._stirred: asyncio.Future[None] | None = None  # what `run` waits for, while it does

    def share(self, rush: Rush) -> None:
        self._rush = rush
        rush.join(self._stir)

    def follows(self, claim: SandboxClaim) -> None:
        """The claim is told to be Ready, and shall be told so once more."""
        if self._options.annotations:
            at = self._clock.monotonic() + self._options.annotate_after
            self._due.append(_Due(at, claim.metadata.key, claim.metadata.uid))
            self._stir()

    async def run(self) -> None:
        while True:
            if not self._due:
                await self._news()
                continue
            at = self._due[0].at
            now = self._clock.monotonic()
            if now < at:
                await self._clock.sleep(at - now)
            elif not self._rush.calm and now < at + PATIENCE:
                await self._news(at + PATIENCE - now)
            else:
                await self._write(now)

    async def _news(self, longest: float | None = None) -> None:
        """Waits until nobody is waited for any more, another claim is noted, or so many seconds have passed."""
        self._stirred = asyncio.get_running_loop().create_future()
        timer = None if longest is None else self._clock.call_later(longest, self._stir)
        try:
            await self._stirred
        finally:
            self._stirred = None
            if timer is not None:
                timer.cancel()

    def _stir(self) -> None:
        if self._stirred is not None and not self._stirred.done():
            self._stirred.set_result(None)

    async def _write(self, now: float) -> None:
        due: list[_Due] = []
        while self._due and self._due[0].at <= now and len(due) < AT_ONCE:
            due.append(self._due.popleft())
        with lane_of(Lane.STATUS):
            async with asyncio.TaskGroup() as together:
                for one in due:
                    together.create_task(self._annotate(one.key, one.uid))

    async def _annotate(self, key: Key, uid: Uid) -> None:
        claim, notes = self._observer.caches.claims.get(key), self._memory.find(uid)
        if claim is None or notes is None or claim.metadata.uid != uid or claim.metadata.leaving:
            return  # it has gone meanwhile
        name = bound_name(claim)
        patch = annotations_patch(claim, name, notes, self._clock.now()) if name else None
        if patch is None:
            return
        bind({"controller": self._loop.name, "key": key})
        if not await self._publisher.annotate(claim, patch):
            self._loop.wake(key, "annotations", Priority.SECOND, after=self._options.annotate_again)
