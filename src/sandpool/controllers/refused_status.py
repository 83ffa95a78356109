"""Reports a status that the API server refuses to store, with an Event on the object and a metric.

The object itself cannot report it: it keeps showing its last status. Events and metrics need other permissions, and operators see them without
reading the log. A refused write is retried at least once a minute (loop/controller.py), so a refusal that is not repeated within three minutes is
over, also if the object is gone.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from sandpool.base.clock import Clock
from sandpool.kube.errors import ApiError, Forbidden
from sandpool.loop.cache import Cache
from sandpool.loop.events import Events, Kind
from sandpool.model.event_reasons import EventReason
from sandpool.model.metadata import Key, Uid
from sandpool.model.resource import Resource
from sandpool.telemetry.families import STATUS_REFUSED, Family, Values
from sandpool.telemetry.metrics import Metrics

LASTS = 180.0
"""Seconds after which a refusal that was not repeated is over."""
MOST = 4096


class Refusals:
    """The objects whose status was refused lately, and when."""

    def __init__(self, most: int = MOST) -> None:
        self._last: OrderedDict[tuple[str, Uid], float] = OrderedDict()  # what was not refused for longest comes first
        self._most = most

    def add(self, resource: str, uid: Uid, now: float) -> bool:
        """Counts a refusal. True if it is new, not a repetition of a known one."""
        self._forget(now)
        key = (resource, uid)
        known = key in self._last
        self._last[key] = now
        self._last.move_to_end(key)
        if len(self._last) > self._most:
            self._last.popitem(last=False)
        return not known

    def counts(self, now: float) -> Counter[str]:
        """How many objects of each resource."""
        self._forget(now)
        return Counter(resource for resource, _ in self._last)

    def _forget(self, now: float) -> None:
        while self._last and now - next(iter(self._last.values())) > LASTS:
            self._last.popitem(last=False)


class RefusedStatus:
    """Reports refusals. `events` has the recorder for each kind."""

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
    """The message of the Event."""
    group = f" ({resource.group})" if resource.group else ""
    step = f"; the controller needs `patch` on {resource.plural}/status{group}" if isinstance(error, Forbidden) else ""
    return f"The status is not up to date: the API server refuses to let it be written: {error}{step}"
