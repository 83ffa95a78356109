"""What acts on the objects of a local cluster: the kubelet of its one node and the four controllers, in its own process.

The kubelet is at work before the controllers start, and still is while they finish: what they order is carried out.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import random as dice

from sandpool.app.controllers import ControllerOptions, Telling, assemble
from sandpool.base.clock import Clock
from sandpool.base.interpreter import collect_quietly
from sandpool.kube.api import Api
from sandpool.kube.lanes import LaneGate
from sandpool.kube.metered import Counted
from sandpool.loop.events import EventRecorder
from sandpool.loop.lifetimes import beside, reached
from sandpool.loop.manager import Deadlines, Manager
from sandpool.node.backend import Backend
from sandpool.node.kubelet.agent import Kubelet, Surroundings
from sandpool.node.kubelet.usage import UsageSampler
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics

log = logger(__name__)

COMPONENT = "sandpool"
"""Who Events are reported by."""
MOST_WARMING = 256
"""Members of one pool that start at once: about a second's worth. A pool of thousands is refilled in a stream that claims are served from, not in one wave."""
IN_FLIGHT = 400
"""Writes of the controllers at once: many share one commit, and what a claim waits for goes before what a pool waits for."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds."""

    drained: float = 10.0  # from the stop until the controllers are done with what waits
    told: float = 2.0  # from there until Events that still wait are written


class LocalControl:
    def __init__(
        self,
        api: Api,
        backend: Backend,
        clock: Clock,
        telling: Telling,
        *,
        around: Surroundings = Surroundings(),
        events: bool = True,
        options: ControllerOptions = ControllerOptions(),
        random: Callable[[], float] = dice,
        patience: Patience = Patience(),
    ) -> None:
        self._patience = patience
        counted = Counted(api, clock, telling.metrics.called)  # what controllers ask for, not what the node does
        self._recorder = recorder(counted, clock, telling.metrics, random) if events else None
        if self._recorder is not None:
            telling = replace(telling, events=self._recorder)
            around = replace(around, events=self._recorder)
        self._kubelet = Kubelet(
            api, backend, clock, around=around, metrics=telling.metrics, story=telling.story, random=random
        )
        options = replace(options, pool=replace(options.pool, most_warming=MOST_WARMING))
        controllers = assemble(counted, clock, random, telling, options, gate=LaneGate(clock, width=IN_FLIGHT))
        self._manager = Manager(controllers.parts(), Deadlines(drained=patience.drained))
        self._clock, self._calm = clock, lambda: controllers.rush.calm
        self.rush = controllers.rush
        self.outright = controllers.claim.outright
        self.sandboxes = controllers.caches.sandboxes
        self.pods = self._kubelet.pods
        self.usage = UsageSampler(backend, clock)

    @property
    def checks(self) -> dict[str, Callable[[], bool]]:
        """What readyz asks."""
        return {"kubelet": self._kubelet.ready.is_set, "controllers": self._manager.ready.is_set}

    @asynccontextmanager
    async def running(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """The body begins when everything is at work, or `stop` is set; it must last until then."""
        async with beside(kubelet=self._kubelet.run(), garbage=collect_quietly(self._clock, self._calm)):
            await reached(self._kubelet.ready, stop)
            async with self._told(), asyncio.TaskGroup() as group:
                group.create_task(self._manager.run(stop), name="controllers")
                await reached(self._manager.ready, stop)
                yield

    @asynccontextmanager
    async def _told(self) -> AsyncIterator[None]:
        """Events are written beside the controllers, and what still waits at the end is written then."""
        if self._recorder is None:
            yield
            return
        async with beside(events=self._recorder.run()):
            yield
        await self._recorder.flush(self._patience.told)


def recorder(api: Api, clock: Clock, metrics: Metrics, random: Callable[[], float]) -> EventRecorder:
    return EventRecorder(api, clock, metrics, random, controller=COMPONENT, instance=platform.node() or COMPONENT)
