"""Tells of a status that the API server refuses to let us write: the object itself cannot, it goes on showing what was before.

An Event says so, on the object, and a metric counts such objects. Both are heard of outside the log, and need other permissions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sandpool.base.clock import Clock
from sandpool.kube.errors import ApiError, Forbidden
from sandpool.loop.cache import Cache
from sandpool.loop.events import Events, Kind
from sandpool.loop.refusals import Refusals
from sandpool.model.event_reasons import EventReason
from sandpool.model.metadata import Key
from sandpool.model.resource import Resource
from sandpool.telemetry.families import STATUS_REFUSED, Family, Values
from sandpool.telemetry.metrics import Metrics


class RefusedStatus:
    """`events` says where those of each kind go."""

    def __init__(
        self, caches: Iterable[Cache[Any]], events: Mapping[Resource[Any], Events], clock: Clock, metrics: Metrics
    ) -> None:
        self._caches = {cache.resource: cache for cache in caches if cache.resource in events}
        self._events = events
        self._clock = clock
        self._refusals = Refusals()
        metrics.show(self._read)

    def refused(self, resource: Resource[Any], key: Key, error: ApiError) -> None:
        cache = self._caches.get(resource)
        about = None if cache is None else cache.get(key)
        if about is None:
            return
        if self._refusals.add(resource.group_resource, about.metadata.uid, self._clock.monotonic()):
            events, message = self._events[resource], sentence(resource, error)
            events.emit(resource, about, Kind.WARNING, EventReason.STATUS_REFUSED, message)

    def _read(self) -> Iterable[tuple[Family, Values]]:
        counts = self._refusals.counts(self._clock.monotonic())
        names = (resource.group_resource for resource in self._caches)
        yield STATUS_REFUSED, {(name,): float(counts[name]) for name in names}


def sentence(resource: Resource[Any], error: ApiError) -> str:
    """For people who read the Event."""
    group = f" ({resource.group})" if resource.group else ""
    step = f"; the controller needs `patch` on {resource.plural}/status{group}" if isinstance(error, Forbidden) else ""
    return f"The status is not up to date: the API server refuses to let it be written: {error}{step}"
