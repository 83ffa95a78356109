"""One pod, alive: what is known of it, the task that decides and does what comes next, and the orders that it takes.

`life.next_step` decides; `_do` carries out. Orders only note what is wanted and wake the task; a stop also cancels what may take
long. Whatever was made is remembered as soon as it is there, so every step can be cut and done again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from math import inf
from typing import Any

from sandpool.base.errors import NodeError
from sandpool.node.backend import Exit, Running, Started, UnknownPod, Workload
from sandpool.node.pods import picture
from sandpool.node.pods.containers import begin_container, how_it_ended
from sandpool.node.pods.life import Ask, Begin, Make, Reclaim, Rest, Step, TakeAway, next_step, troubled
from sandpool.node.pods.parts import Parts
from sandpool.node.pods.room import Room
from sandpool.node.pods.run import Run
from sandpool.node.pods.slot import Slot
from sandpool.node.pods.storage import PodStorage
from sandpool.node.pods.threads import Threads, unbroken
from sandpool.telemetry.log import logger

log = logger(__name__)
SANDBOX_GONE = "SandboxGone"
"""What a runtime says of a sandbox that it has lost."""


class Pod:
    """`over`: one of an earlier process, of which only the logs are left."""

    def __init__(self, workload: Workload, parts: Parts, *, over: bool = False) -> None:
        self._parts = parts
        self._clock = parts.around.clock
        self.slots = _slots(workload, over)
        self.room = Room(workload, parts)
        self._facts = picture.Facts(over=over)
        self._freezing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._step: Step = Rest()
        self._doing: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self.seen = self._look()
        self.storage = PodStorage(self, self._clock)

    # What is known

    @property
    def workload(self) -> Workload:
        """As much of it as is still needed."""
        return self.room.workload

    def slot(self, name: str) -> Slot:
        slot = self.slots.get(name)
        if slot is None:
            raise UnknownPod(self.workload.uid, name)
        return slot

    def running(self, name: str) -> Run:
        slot = self.slot(name)
        if slot.run is None:
            raise UnknownPod(self.workload.uid, name)
        return slot.run

    @property
    def threads(self) -> Threads:
        return self._parts.around.threads

    @property
    def paused(self) -> bool:
        return self._facts.paused

    def _look(self) -> Running:
        self._facts.made = self.room.made
        now, room = self._clock.monotonic(), self.room
        return picture.running(self.workload, self.slots.values(), self._facts, room.address, room.notes, now)

    def _tell(self) -> None:
        seen = self._look()
        if seen != self.seen:
            self.seen = seen
            self._parts.changed(self.workload.uid)

    # Orders

    def restart(self, name: str) -> None:
        slot = self.slot(name)
        if isinstance(slot.state, Exit) and not self._facts.stopping and not self._facts.over:
            slot.again = True
            self._wake.set()

    def end(self, name: str, grace: float) -> None:
        """Ends one container. The earliest end that was ordered counts."""
        slot = self.slot(name)
        if slot.run is None or self._facts.stopping:
            return
        known, slot.ends_at = slot.ends_at, min(slot.ends_at, self._clock.monotonic() + max(0.0, grace))
        if known == inf:
            self._go_beside(self._end_one(slot, slot.run))
        elif slot.ends_at < known:
            self._go_beside(self._force(slot, slot.run))

    def reclaim(self) -> None:
        """It is over: nothing of it is started any more, and all but its logs is taken back."""
        if not self._facts.over:
            self._facts.over = True
            self._begin_no_more()

    def stop(self, grace: float) -> None:
        """The earliest end that was ordered counts."""
        self._facts.ends_at = min(self._facts.ends_at, self._clock.monotonic() + max(0.0, grace))
        self._begin_no_more()
        self._tell()

    def _begin_no_more(self) -> None:
        """Whatever it waited for is not wanted any more, and an obstacle is tried again now."""
        self._facts.trouble = None
        if self._doing is not None and isinstance(self._step, Make | Begin):
            self._doing.cancel()
        self._wake.set()

    def evict(self, message: str) -> None:
        """Ends it at once, for a reason that its status will tell."""
        if not self._facts.evicted:
            self._facts.evicted = message
            self.stop(0.0)

    async def freeze(self) -> None:
        async with self._freezing:
            if self.room.made and not self._facts.evicted:
                await self.room.there().freeze()

    async def thaw(self) -> None:
        async with self._freezing:
            if self.room.made:
                await self.room.there().thaw()

    def relabel(self, labels: Mapping[str, str]) -> None:
        self.room.relabel(labels)
        self._tell()

    async def pause(self) -> None:
        async with self._freezing:
            if not self._facts.paused:
                await self.room.there().pause()
                self._facts.paused = True
                self._tell()

    async def resume(self) -> None:
        async with self._freezing:
            if self._facts.paused:
                await self.room.there().resume()
                self._facts.paused = False
                self._wake.set()
                self._tell()

    # The task

    async def run(self) -> None:
        """Until nothing of the pod is left."""
        while True:
            self._wake.clear()
            self._facts.made = self.room.made
            step = next_step(picture.view(self.slots.values(), self._facts), self._clock.monotonic())
            if isinstance(step, Rest):
                await self._rest(step.until)
            elif isinstance(step, TakeAway):
                if await self._taken_away():
                    # It knows this pod: a circle, which would stay until all objects are looked at, and that is seldom.
                    del self.storage
                    return
            else:
                await self._try(step)
            self._tell()

    async def _rest(self, until: float) -> None:
        timer = None
        if until < inf:
            timer = self._clock.call_later(max(0.0, until - self._clock.monotonic()), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _try(self, step: Step) -> None:
        """A stop cancels it, and then only it."""
        self._step, self._doing = step, asyncio.create_task(self._do(step))
        try:
            await asyncio.wait([self._doing])
        except asyncio.CancelledError:
            self._doing.cancel()
            await asyncio.gather(self._doing, return_exceptions=True)
            raise
        finally:
            doing, self._doing = self._doing, None
        if not doing.cancelled() and (error := doing.exception()) is not None:
            self._stumble(step, error)

    async def _do(self, step: Step) -> None:
        match step:
            case Make():
                await self.room.make()
                self._facts.trouble = None
            case Begin(name):
                slot = self.slots[name]
                self._facts.initialized |= not slot.init
                try:
                    await begin_container(slot, self.room, self._parts, self._started, self._tell)
                except NodeError as error:
                    if error.reason == SANDBOX_GONE:
                        await self.room.empty()  # it is made anew
                    raise
            case Ask():
                await self._ask()
            case Reclaim():
                await unbroken(self._reclaim())

    def _stumble(self, step: Step, error: BaseException) -> None:
        if not isinstance(error, NodeError):
            log.error("a pod's step failed", exc=error, pod=str(self.workload.key), step=str(step))
            error = NodeError("InternalError", f"{type(error).__name__}: {error}; look at the log of sandpool")
        holder = self.slots[step.container] if isinstance(step, Begin) else self._facts
        now, options = self._clock.monotonic(), self._parts.options
        holder.trouble = troubled(holder.trouble, error.reason, error.message, now, options)
        log.warning("pod waits", pod=str(self.workload.key), reason=error.reason, error=error.message)

    def _started(self, slot: Slot, run: Run) -> None:
        self._go_beside(self._watch(slot, run))

    async def _watch(self, slot: Slot, run: Run) -> None:
        ended = await run.finished()
        started = slot.state.at if isinstance(slot.state, Started) else self._clock.now()
        slot.ended(await how_it_ended(slot, ended, started, self.room, self._parts))
        self._wake.set()
        self._tell()

    # The end

    async def _ask(self) -> None:
        self._facts.asked = True
        await self.resume()
        for slot in self.slots.values():
            if slot.run is not None:
                await slot.run.container.signal(self._stop_signal(slot))

    async def _end_one(self, slot: Slot, run: Run) -> None:
        with suppress(NodeError):
            await run.container.signal(self._stop_signal(slot))
        await self._force(slot, run)

    async def _force(self, slot: Slot, run: Run) -> None:
        """At its time, if it has not ended before."""
        await asyncio.wait([run.container.ended], timeout=max(0.0, slot.ends_at - self._clock.monotonic()))
        if not run.container.ended.done():
            with suppress(NodeError):
                await run.container.kill()

    def _stop_signal(self, slot: Slot) -> int:
        return self.room.stop_signals.get(slot.spec.name, signal.SIGTERM)

    async def _reclaim(self) -> None:
        await self.leave()
        for slot in self.slots.values():
            if isinstance(slot.state, Started):  # its end was not seen in time
                slot.ended(Exit(128 + signal.SIGKILL, self._clock.now(), slot.state.at, signal.SIGKILL))
        await self.room.reclaim()
        await self.storage.keep_logs()
        self._facts.trouble, self._facts.paused, self._facts.reclaimed = None, False, True

    async def _taken_away(self) -> bool:
        try:
            await unbroken(self.leave())
            await unbroken(self.room.remove())
        except Exception as error:
            self._stumble(TakeAway(), error)
            return False
        return True

    async def leave(self) -> None:
        """Nothing of the pod runs any more; its files stay."""
        await self.room.empty()
        if self._beside:
            await asyncio.wait(self._beside, timeout=5)
        for slot in self.slots.values():
            if slot.run is not None:
                await slot.run.abandon()
        for task in tuple(self._beside):
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def _go_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)


def _slots(workload: Workload, over: bool) -> dict[str, Slot]:
    spec, was = workload.spec, workload.was
    before = {one.name: one for one in (*was.init, *was.containers)} if was is not None else {}
    if over:
        kept = [Slot.kept(one, before.get(one.name), init=True) for one in spec.init_containers]
        kept += [Slot.kept(one, before.get(one.name), init=False) for one in spec.containers]
        return {slot.spec.name: slot for slot in kept}
    has_init = bool(spec.init_containers)
    slots = [Slot.of(one, before.get(one.name), init=True, initializing=True) for one in spec.init_containers]
    slots += [Slot.of(one, before.get(one.name), init=False, initializing=has_init) for one in spec.containers]
    return {slot.spec.name: slot for slot in slots}
