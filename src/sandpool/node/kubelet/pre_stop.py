"""Runs preStop hooks before containers are stopped, within the grace period.

Each time before it stops a pod or container, the kubelet calls `left`. None means that hooks still run. A number means that it may be
stopped now, within that many seconds. `changed` triggers a reconcile of the pod when its hooks have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandpool.base.clock import Clock
from sandpool.model.metadata import Uid
from sandpool.node.backend import ContainerStatus, PodStatus, Started
from sandpool.node.kubelet.pods import Handler, NodeContainer, NodePod
from sandpool.node.kubelet.probe_runner import ProbeOutcome, ProbeTarget
from sandpool.node.kubelet.probe_state import Result
from sandpool.node.kubelet.prober import RunProbe

LEAST_GRACE = 2.0
"""Minimum seconds that a process has after its hook, even if the hook used up the grace period."""
Failed = Callable[[ProbeTarget, ProbeOutcome], object]


@dataclass(slots=True, eq=False)
class _HookRun:
    deadline: float  # monotonic
    limit: asyncio.Timeout
    task: asyncio.Task[None] | None = None
    done: bool = False


class PreStopHooks:
    def __init__(self, run: RunProbe, clock: Clock, changed: Callable[[Uid], object], failed: Failed) -> None:
        self._run_probe = run
        self._clock = clock
        self._changed = changed
        self._failed = failed
        self._known: dict[Uid, dict[tuple[str, int], _HookRun]] = {}
        self._group: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        return len(self._known)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None
                for uid in tuple(self._known):
                    self.forget(uid)

    def left(self, pod: NodePod, seen: PodStatus, grace: float, container: str = "") -> float | None:
        """Seconds left for stopping the pod, or one of its containers; None while hooks run."""
        hooks, run = _hooks(pod, seen, container)
        known = self._known.get(seen.uid, {}).get((container, run))
        if known is None and (not hooks or grace <= 0 or seen.stopping or self._group is None):
            return grace
        now = self._clock.monotonic()
        if known is None:
            known = self._begin(seen.uid, hooks, grace)
            self._known.setdefault(seen.uid, {})[container, run] = known
        elif not known.done and now + grace < known.deadline:  # the grace period was shortened
            known.deadline = now + grace
            known.limit.reschedule(asyncio.get_running_loop().time() + grace)
        if pod.metadata.leaving and pod.metadata.deletion_grace_period_seconds == 0:
            self._cut(known)
            return 0.0
        return max(LEAST_GRACE, known.deadline - now) if known.done else None

    def forget(self, uid: Uid) -> None:
        for known in self._known.pop(uid, {}).values():
            self._cut(known)

    def _cut(self, known: _HookRun) -> None:
        known.done = True
        if known.task is not None:
            known.task.cancel()

    def _begin(self, uid: Uid, hooks: Sequence[tuple[NodeContainer, Handler]], grace: float) -> _HookRun:
        assert self._group is not None
        known = _HookRun(self._clock.monotonic() + grace, asyncio.timeout(grace))
        known.task = self._group.create_task(self._run_hooks(uid, hooks, known))
        return known

    async def _run_hooks(self, uid: Uid, hooks: Sequence[tuple[NodeContainer, Handler]], known: _HookRun) -> None:
        target = [ProbeTarget(uid, container) for container, _ in hooks]
        answers = [ProbeOutcome(Result.FAILURE, "it took all of the grace")] * len(target)
        try:
            async with known.limit:
                answers = await asyncio.gather(
                    *(self._run_probe(one, hook, None) for one, (_, hook) in zip(target, hooks, strict=True))
                )
        except TimeoutError:
            pass
        for one, outcome in zip(target, answers, strict=True):
            if outcome.result is Result.FAILURE:
                self._failed(one, outcome)
        known.done = True
        self._changed(uid)


def _hooks(pod: NodePod, seen: PodStatus, name: str) -> tuple[list[tuple[NodeContainer, Handler]], int]:
    """The hooks of running containers, and the run number of the named one."""
    running: dict[str, ContainerStatus] = {
        container.name: container
        for container in (*seen.init, *seen.containers)
        if isinstance(container.state, Started) and name in ("", container.name)
    }
    hooks = [
        (container, container.pre_stop)
        for container in pod.spec.lasting
        if container.pre_stop is not None and container.name in running
    ]
    run = next((container.restarts for container in (*seen.init, *seen.containers) if container.name == name), 0)
    return hooks, run
