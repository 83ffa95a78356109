"""Maintains a RuntimeClass for each runtime that the operator allows. It says whether the runtime works on this machine, and if not, why.

Level-triggered: each round corrects what is missing or wrong. A class with another handler is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sandpool.base.clock import Clock
from sandpool.kube.api import Api
from sandpool.kube.errors import AlreadyExists, ApiError, NotFound, Unreachable
from sandpool.loop.cache import Cache
from sandpool.model.core import RuntimeClass
from sandpool.model.kinds import RUNTIME_CLASSES
from sandpool.model.patches import merge_patch
from sandpool.node.backend import Probe
from sandpool.node.kubelet.placement import Runtimes
from sandpool.telemetry.log import logger

log = logger(__name__)

AVAILABLE = "sandpool.dev/available"
WHY = "sandpool.dev/why-not"
ENFORCED = "sandpool.dev/enforced"

Offers = Mapping[str, Probe]
Offering = Callable[[], Awaitable[Offers]]
"""Probes each runtime; returns the results by name."""


@dataclass(frozen=True, slots=True)
class Create:
    name: str


@dataclass(frozen=True, slots=True)
class Correct:
    name: str


@dataclass(frozen=True, slots=True)
class Remove:
    name: str


def runtimes_of(offers: Offers, classes: Mapping[str, str]) -> Runtimes:
    absent = {name: why_not(name, probe) for name, probe in offers.items() if not probe.available}
    return Runtimes(classes, absent, frozenset(name for name, probe in offers.items() if probe.available))


def why_not(name: str, probe: Probe) -> str:
    return f"{name} does not work on this machine: {probe.message or probe.reason or 'no reason is known'}"


def marks(probe: Probe) -> dict[str, Any]:
    """The labels and annotations for a probe's result. None removes one."""
    reason = None if probe.available else (probe.message or probe.reason or "unknown")
    return {
        "labels": {AVAILABLE: "true" if probe.available else "false"},
        "annotations": {WHY: reason, ENFORCED: ",".join(sorted(probe.enforced)) or None},
    }


def wrong(offers: Offers, classes: Mapping[str, RuntimeClass]) -> Iterator[Create | Correct | Remove]:
    """The steps to correct the RuntimeClasses. A class that an earlier start created for a runtime that is no longer offered is removed, so
    that no pod is accepted because of it."""
    for name, one in classes.items():
        if name not in offers and one.handler == name and AVAILABLE in one.metadata.labels:
            yield Remove(name)
    for name, probe in offers.items():
        there = classes.get(name)
        if there is None:
            yield Create(name)
        elif there.handler == name and not _marked(there, probe):
            yield Correct(name)


def _marked(there: RuntimeClass, probe: Probe) -> bool:
    wanted, meta = marks(probe), there.metadata
    return all(meta.labels.get(key) == value for key, value in wanted["labels"].items()) and all(
        meta.annotations.get(key) == value for key, value in wanted["annotations"].items()
    )


def class_body(name: str, probe: Probe) -> dict[str, Any]:
    found = marks(probe)
    notes = {key: value for key, value in found["annotations"].items() if value is not None}
    return {"metadata": {"name": name, "labels": found["labels"], "annotations": notes}, "handler": name}


class RuntimeClasses:
    def __init__(self, api: Api, classes: Cache[RuntimeClass], clock: Clock, every: float) -> None:
        self._api = api
        self._classes = classes
        self._clock = clock
        self._every = every
        self.offers: Offers = {}
        self.tried = asyncio.Event()  # `offers` is known

    def set(self, offers: Offers) -> None:
        self.offers = offers
        self.tried.set()

    async def run(self) -> None:
        await self.tried.wait()
        await self._classes.synced.wait()
        while True:
            await self.reconcile()
            await self._clock.sleep(self._every)

    async def reconcile(self) -> None:
        for step in list(wrong(self.offers, {one.metadata.name: one for one in self._classes})):
            try:
                await self._apply(step)
            except (ApiError, Unreachable) as error:
                log.warning("runtime class not written", name=step.name, error=f"{type(error).__name__}: {error}")

    async def _apply(self, step: Create | Correct | Remove) -> None:
        try:
            match step:
                case Create(name):
                    await self._api.create(RUNTIME_CLASSES, class_body(name, self.offers[name]))
                case Correct(name):
                    await self._api.patch(RUNTIME_CLASSES, name, merge_patch({"metadata": marks(self.offers[name])}))
                case Remove(name):
                    await self._api.delete(RUNTIME_CLASSES, name)
        except (AlreadyExists, NotFound):
            pass  # the next round sees the current object

    @property
    def known(self) -> Runtimes:
        return runtimes_of(self.offers, {one.metadata.name: one.handler for one in self._classes})
