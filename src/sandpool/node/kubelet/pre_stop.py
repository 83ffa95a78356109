"""preStop hooks: what a container is told before it is ended, within its grace.

Whoever is about to end something asks `left` first, again and again: None means that hooks still run, a number that it may be
ended now, within so many seconds. When the hooks have run, `changed` wakes the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandpool.base.clock import Clock
from sandpool.model.metadata import Uid
from sandpool.node.backend import Running, RunningContainer, Started
from sandpool.node.kubelet.pods import NodeContainer, NodePod
from sandpool.node.kubelet.probe_runner import Answer, Asked
from sandpool.node.kubelet.probe_spec import Handler
from sandpool.node.kubelet.probe_state import Result
from sandpool.node.kubelet.prober import Ask

LEAST_GRACE = 2.0
"""Seconds that a process has after its hook, even if the hook took all of the grace."""
Failed = Callable[[Asked, Answer], object]


@dataclass(slots=True, eq=False)
class _Goodbye:
    deadline: float  # monotonic
    limit: asyncio.Timeout
    task: asyncio.Task[None] | None = None
    said: bool = False


class Goodbyes:
    def __init__(self, ask: Ask, clock: Clock, changed: Callable[[Uid], object], failed: Failed) -> None:
        self._ask = ask
        self._clock = clock
        self._changed = changed
        self._failed = failed
        self._known: dict[Uid, dict[tuple[str, int], _Goodbye]] = {}
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

    def left(self, pod: NodePod, seen: Running, grace: float, container: str = "") -> float | None:
        """Of the pod, or of one of its containers."""
        hooks, run = _hooks(pod, seen, container)
        known = self._known.get(seen.uid, {}).get((container, run))
        if known is None and (not hooks or grace <= 0 or seen.stopping or self._group is None):
            return grace
        now = self._clock.monotonic()
        if known is None:
            known = self._begin(seen.uid, hooks, grace)
            self._known.setdefault(seen.uid, {})[container, run] = known
        elif not known.said and now + grace < known.deadline:  # the grace has shrunk
            known.deadline = now + grace
            known.limit.reschedule(asyncio.get_running_loop().time() + grace)
        if pod.metadata.leaving and pod.metadata.deletion_grace_period_seconds == 0:
            self._cut(known)
            return 0.0
        return max(LEAST_GRACE, known.deadline - now) if known.said else None

    def forget(self, uid: Uid) -> None:
        for known in self._known.pop(uid, {}).values():
            self._cut(known)

    def _cut(self, known: _Goodbye) -> None:
        known.said = True
        if known.task is not None:
            known.task.cancel()

    def _begin(self, uid: Uid, hooks: Sequence[tuple[NodeContainer, Handler]], grace: float) -> _Goodbye:
        assert self._group is not None
        known = _Goodbye(self._clock.monotonic() + grace, asyncio.timeout(grace))
        known.task = self._group.create_task(self._say(uid, hooks, known))
        return known

    async def _say(self, uid: Uid, hooks: Sequence[tuple[NodeContainer, Handler]], known: _Goodbye) -> None:
        asked = [Asked(uid, container) for container, _ in hooks]
        answers = [Answer(Result.FAILURE, "it took all of the grace")] * len(asked)
        try:
            async with known.limit:
                answers = await asyncio.gather(
                    *(self._ask(one, hook, None) for one, (_, hook) in zip(asked, hooks, strict=True))
                )
        except TimeoutError:
            pass
        for one, answer in zip(asked, answers, strict=True):
            if answer.result is Result.FAILURE:
                self._failed(one, answer)
        known.said = True
        self._changed(uid)


def _hooks(pod: NodePod, seen: Running, name: str) -> tuple[list[tuple[NodeContainer, Handler]], int]:
    """Those of the containers that run, and which run of the one it is about."""
    running: dict[str, RunningContainer] = {
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
