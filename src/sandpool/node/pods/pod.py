"""The worker of one pod: its state, the task that carries out the next step, and the calls that it accepts.

`life.next_step` decides, `_do` carries out. Calls only record what is wanted and wake the task; a stop also cancels a step that may
take long. Whatever was made is recorded as soon as it exists, so every step can be cancelled and repeated.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from math import inf
from typing import Any

from sandpool.base.errors import NodeError
from sandpool.base.shielded import shielded
from sandpool.node.backend import Exit, PodStatus, Started, UnknownPod, Workload
from sandpool.node.pods import notes
from sandpool.node.pods.containers import exit_state, start_container
from sandpool.node.pods.context import PodContext
from sandpool.node.pods.life import (
    PodState,
    Reclaim,
    Remove,
    RunSandbox,
    SignalContainers,
    StartContainer,
    Step,
    Wait,
    next_step,
    troubled,
)
from sandpool.node.pods.pod_sandbox import PodSandbox
from sandpool.node.pods.run import Run
from sandpool.node.pods.state import ContainerState, snapshot
from sandpool.node.pods.storage import PodStorage
from sandpool.node.pods.threads import Threads
from sandpool.telemetry.log import logger

log = logger(__name__)
SANDBOX_GONE = "SandboxGone"
"""The reason with which a runtime reports a lost sandbox."""


class Pod:
    """`over`: the pod ran in an earlier process, and only its logs are left."""

    def __init__(self, workload: Workload, context: PodContext, *, over: bool = False) -> None:
        self._context = context
        self._clock = context.run_context.clock
        self.containers = _containers(workload, over)
        self.sandbox = PodSandbox(workload, context)
        self._state = PodState(over=over)
        self._freezing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._step: Step = Wait()
        self._doing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.seen = self._look()
        self.storage = PodStorage(self, self._clock)

    # State

    @property
    def workload(self) -> Workload:
        """The workload, as far as it is still needed."""
        return self.sandbox.workload

    def container(self, name: str) -> ContainerState:
        container = self.containers.get(name)
        if container is None:
            raise UnknownPod(self.workload.uid, name)
        return container

    def run_of(self, name: str) -> Run:
        container = self.container(name)
        if container.run is None:
            raise UnknownPod(self.workload.uid, name)
        return container.run

    @property
    def threads(self) -> Threads:
        return self._context.run_context.threads

    @property
    def log_threads(self) -> Threads:
        return self._context.run_context.log_threads

    @property
    def search_threads(self) -> Threads:
        return self._context.run_context.search_threads

    @property
    def paused(self) -> bool:
        return self._state.paused

    def _look(self) -> PodStatus:
        self._state.made = self.sandbox.made
        now, sandbox = self._clock.monotonic(), self.sandbox
        return snapshot(self.workload, self.containers.values(), self._state, sandbox.address, sandbox.notes, now)

    def _publish(self) -> None:
        seen = self._look()
        if seen != self.seen:
            self.seen = seen
            self._keep()
            self._context.changed(self.workload.uid)

    def _keep(self) -> None:
        """Has the sandbox keep what a later process must know."""
        sandbox, state = self.sandbox, self._state
        if sandbox.made and not state.found:
            known = notes.KnownPod(
                sandbox.address, state.initialized, state.paused, state.evicted, sandbox.notes, sandbox.stop_signals,
                notes.known_containers(self.containers.values()),
            )  # fmt: skip
            sandbox.require().keep(notes.STATE, notes.state_note(known))

    # Taking over a pod that an earlier process has started

    def follow(self, container: ContainerState, run: Run) -> None:
        container.run = run
        self._spawn(self._watch(container, run))

    def taken_over(self, *, initialized: bool, paused: bool, evicted: str) -> None:
        self._state.initialized, self._state.paused, self._state.found = initialized, paused, True
        self.seen = self._look()
        if evicted:
            self.evict(evicted)

    async def complete(self, workload: Workload) -> None:
        """Gives a pod that was taken over what only the API knows; from now on its containers can be started again."""
        if self._state.found and not self._state.stopping and not self._state.over:
            await shielded(self.sandbox.complete(workload))
            self._state.found = False
            for name, container in self.containers.items():
                container.spec = next(
                    (one for one in (*workload.spec.init_containers, *workload.spec.containers) if one.name == name),
                    container.spec,
                )
            self._wake.set()
            self._publish()

    # Calls

    def restart(self, name: str) -> None:
        container = self.container(name)
        if isinstance(container.state, Exit) and not self._state.stopping and not self._state.over:
            container.again = True
            self._wake.set()

    def end(self, name: str, grace: float) -> None:
        """Stops one container. Repeated, the earliest deadline counts."""
        container = self.container(name)
        if container.run is None or self._state.stopping:
            return
        known, container.ends_at = container.ends_at, min(container.ends_at, self._clock.monotonic() + max(0.0, grace))
        if known == inf:
            self._spawn(self._end_one(container, container.run))
        elif container.ends_at < known:
            self._spawn(self._force(container, container.run))

    def reclaim(self) -> None:
        """The pod has ended: nothing is started any more, and everything but its logs is released."""
        if not self._state.over:
            self._state.over = True
            self._start_no_more()

    def stop(self, grace: float) -> None:
        """Stops the pod. Repeated, the earliest deadline counts."""
        self._state.ends_at = min(self._state.ends_at, self._clock.monotonic() + max(0.0, grace))
        self._start_no_more()
        self._publish()

    def _start_no_more(self) -> None:
        """Cancels a start that is under way; after a failure the next step is tried at once."""
        self._state.trouble = None
        if self._doing is not None and isinstance(self._step, RunSandbox | StartContainer):
            self._doing.cancel()
        self._wake.set()

    def evict(self, message: str) -> None:
        """Stops the pod at once; its status shows the message."""
        if not self._state.evicted:
            self._state.evicted = message
            self.stop(0.0)

    async def freeze(self) -> None:
        async with self._freezing:
            if self.sandbox.made and not self._state.evicted:
                await self.sandbox.require().freeze()

    async def thaw(self) -> None:
        async with self._freezing:
            if self.sandbox.made:
                await self.sandbox.require().thaw()

    def relabel(self, labels: Mapping[str, str]) -> None:
        self.sandbox.relabel(labels)
        self._publish()

    async def pause(self) -> None:
        async with self._freezing:
            if not self._state.paused:
                await self.sandbox.require().pause()
                self._state.paused = True
                self._publish()

    async def resume(self) -> None:
        async with self._freezing:
            if self._state.paused:
                await self.sandbox.require().resume()
                self._state.paused = False
                self._wake.set()
                self._publish()

    # The task

    async def run(self) -> None:
        """Runs until nothing of the pod is left."""
        while True:
            self._wake.clear()
            self._state.made = self.sandbox.made
            step = next_step(self._state, self.containers.values(), self._clock.monotonic())
            if isinstance(step, Wait):
                await self._wait(step.until)
            elif isinstance(step, Remove):
                if await self._removed():
                    # It refers to this pod: a cycle that would stay until a full garbage collection, which is rare.
                    del self.storage
                    return
            else:
                await self._try(step)
            self._publish()

    async def _wait(self, until: float) -> None:
        timer = None
        if until < inf:
            timer = self._clock.call_later(max(0.0, until - self._clock.monotonic()), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _try(self, step: Step) -> None:
        """Carries out a step in a task of its own, so that a stop can cancel the step alone."""
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
            self._failed(step, error)

    async def _do(self, step: Step) -> None:
        match step:
            case RunSandbox():
                await self.sandbox.make()
                self._state.trouble = None
            case StartContainer(name):
                container = self.containers[name]
                self._state.initialized |= not container.init
                try:
                    await start_container(container, self.sandbox, self._context, self._started, self._publish)
                except NodeError as error:
                    if error.reason == SANDBOX_GONE:
                        await self.sandbox.empty()  # the next step makes a new one
                    raise
            case SignalContainers():
                await self._signal_all()
            case Reclaim():
                await shielded(self._reclaim())

    def _failed(self, step: Step, error: BaseException) -> None:
        if not isinstance(error, NodeError):
            log.error("step of a pod failed", exc=error, pod=str(self.workload.key), step=str(step))
            error = NodeError("InternalError", f"{type(error).__name__}: {error}; look at the log of sandpool")
        holder = self.containers[step.container] if isinstance(step, StartContainer) else self._state
        now, options = self._clock.monotonic(), self._context.options
        holder.trouble = troubled(holder.trouble, error.reason, error.message, now, options)
        log.warning("pod waits", pod=str(self.workload.key), reason=error.reason, error=error.message)

    def _started(self, container: ContainerState, run: Run) -> None:
        self._keep()  # at once: a run that was not recorded when this process dies is ended by the next one
        self._spawn(self._watch(container, run))

    async def _watch(self, container: ContainerState, run: Run) -> None:
        ended = await run.finished()
        started = container.state.at if isinstance(container.state, Started) else self._clock.now()
        container.ended(await exit_state(container, ended, started, self.sandbox, self._context))
        self._wake.set()
        self._publish()

    # The end

    async def _signal_all(self) -> None:
        self._state.signalled = True
        await self.resume()
        for container in self.containers.values():
            if container.run is not None:
                await container.run.container.signal(self._stop_signal(container))

    async def _end_one(self, container: ContainerState, run: Run) -> None:
        with suppress(NodeError):
            await run.container.signal(self._stop_signal(container))
        await self._force(container, run)

    async def _force(self, container: ContainerState, run: Run) -> None:
        """Kills it at its deadline, if it has not exited before."""
        await asyncio.wait([run.container.ended], timeout=max(0.0, container.ends_at - self._clock.monotonic()))
        if not run.container.ended.done():
            with suppress(NodeError):
                await run.container.kill()

    def _stop_signal(self, container: ContainerState) -> int:
        return self.sandbox.stop_signals.get(container.spec.name, signal.SIGTERM)

    async def _reclaim(self) -> None:
        await self.end_all()
        for container in self.containers.values():
            if isinstance(container.state, Started):  # its exit was not observed in time
                container.ended(Exit(128 + signal.SIGKILL, self._clock.now(), container.state.at, signal.SIGKILL))
        await self.sandbox.reclaim()
        await self.storage.keep_logs()
        self._state.trouble, self._state.paused, self._state.reclaimed = None, False, True

    async def _removed(self) -> bool:
        try:
            await shielded(self.end_all())
            await shielded(self.sandbox.remove())
        except Exception as error:
            self._failed(Remove(), error)
            return False
        return True

    async def end_all(self) -> None:
        """Ends everything that runs in the pod; its files stay."""
        await self.sandbox.empty()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        for container in self.containers.values():
            if container.run is not None:
                await container.run.abandon()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _containers(workload: Workload, over: bool) -> dict[str, ContainerState]:
    spec, was = workload.spec, workload.was
    before = {one.name: one for one in (*was.init, *was.containers)} if was is not None else {}
    if over:
        kept = [ContainerState.kept(one, before.get(one.name), init=True) for one in spec.init_containers]
        kept += [ContainerState.kept(one, before.get(one.name), init=False) for one in spec.containers]
        return {container.spec.name: container for container in kept}
    has_init = bool(spec.init_containers)
    containers = [
        ContainerState.of(one, before.get(one.name), init=True, initializing=True) for one in spec.init_containers
    ]
    containers += [
        ContainerState.of(one, before.get(one.name), init=False, initializing=has_init) for one in spec.containers
    ]
    return {container.spec.name: container for container in containers}
