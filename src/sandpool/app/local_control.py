"""The kubelet and the four controllers of a local cluster, in its own process.

The kubelet starts before the controllers and stops after them, so that pods they create or delete until the end are handled.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import random as dice

from sandpool.app.controllers import ControllerOptions, Observability, assemble
from sandpool.base.clock import Clock
from sandpool.base.interpreter import collect_quietly
from sandpool.kube.api import Api
from sandpool.kube.inline import InlineHooks
from sandpool.kube.interceptors import Metered
from sandpool.kube.priority_gate import PriorityGate
from sandpool.loop.events import EventRecorder, Restraint
from sandpool.loop.lifetimes import beside, reached
from sandpool.loop.manager import Deadlines, Manager
from sandpool.node.backend import Backend
from sandpool.node.kubelet.agent import Kubelet, KubeletServices
from sandpool.node.kubelet.usage import UsageSampler
from sandpool.telemetry.metrics import Metrics

COMPONENT = "sandpool"
"""The reporting component of Events."""
MOST_WARMING = 256
"""Members of one pool that may be starting at once: about a second's worth. A pool of thousands is refilled in a steady stream, from which
claims are served, instead of in one wave."""
IN_FLIGHT = 400
"""Concurrent writes of the controllers. Many share one commit, and writes for claims go before writes for pools."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits of the shutdown, in seconds."""

    drained: float = 10.0  # for the controllers to finish queued work
    flushed: float = 2.0  # after that, to write pending Events


class LocalControl:
    def __init__(
        self,
        api: Api,
        backend: Backend,
        clock: Clock,
        observability: Observability,
        *,
        around: KubeletServices = KubeletServices(),
        events: Restraint | None = Restraint(),  # None: no Events are written
        options: ControllerOptions = ControllerOptions(),
        random: Callable[[], float] = dice,
        patience: Patience = Patience(),
        hooks: InlineHooks | None = None,
    ) -> None:
        self._patience = patience
        counted = Metered(
            api, clock, observability.metrics.called
        )  # counts requests of the controllers, not of the node
        self._recorder = recorder(counted, clock, observability.metrics, random, events) if events else None
        if self._recorder is not None:
            observability = replace(observability, events=self._recorder)
            around = replace(around, events=self._recorder)
        self._kubelet = Kubelet(
            api,
            backend,
            clock,
            around=around,
            metrics=observability.metrics,
            history=observability.history,
            random=random,
        )
        options = replace(options, pool=replace(options.pool, most_warming=MOST_WARMING))
        gate = PriorityGate(clock, width=IN_FLIGHT)
        controllers = assemble(counted, clock, random, observability, options, gate=gate, hooks=hooks)
        self._manager = Manager(controllers.parts(), Deadlines(drained=patience.drained))
        self._clock, self._calm = clock, lambda: controllers.urgent.idle
        self.urgent = controllers.urgent
        self.transfers = controllers.claim.transfers
        self.sandboxes = controllers.caches.sandboxes
        self.pods = self._kubelet.pods
        self.usage = UsageSampler(backend, clock)

    @property
    def checks(self) -> dict[str, Callable[[], bool]]:
        """The checks of /readyz."""
        return {"kubelet": self._kubelet.ready.is_set, "controllers": self._manager.ready.is_set}

    @asynccontextmanager
    async def running(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Runs kubelet and controllers. The body starts when they are ready, or when `stop` is set; it must last until `stop`."""
        async with beside(kubelet=self._kubelet.run(), garbage=collect_quietly(self._clock, self._calm)):
            await reached(self._kubelet.ready, stop)
            async with self._recording(), asyncio.TaskGroup() as group:
                group.create_task(self._manager.run(stop), name="controllers")
                await reached(self._manager.ready, stop)
                yield

    @asynccontextmanager
    async def _recording(self) -> AsyncIterator[None]:
        """Writes Events while the body runs, and those that are still pending when it ends."""
        if self._recorder is None:
            yield
            return
        async with beside(events=self._recorder.run()):
            yield
        await self._recorder.flush(self._patience.flushed)


def recorder(
    api: Api, clock: Clock, metrics: Metrics, random: Callable[[], float], restraint: Restraint
) -> EventRecorder:
    instance = platform.node() or COMPONENT
    return EventRecorder(api, clock, metrics, random, controller=COMPONENT, instance=instance, restraint=restraint)
