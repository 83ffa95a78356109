"""Events about objects: what a user reads in `kubectl describe`.

`emit` never waits and never fails: it puts the event on a bounded list that `run` writes from. The same event again raises a
count, on the list or, by a patch, on the server. Each object has a token bucket; what exceeds it, or the list, is dropped and
counted. Events are hints, not state: nothing may depend on them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from sandpool.base.clock import Clock
from sandpool.base.rate_limit import TokenBucket
from sandpool.kube.api import Api
from sandpool.kube.errors import ApiError, ConfigError, NotFound, Unreachable
from sandpool.model.kinds import EVENTS
from sandpool.model.metadata import Object, Uid
from sandpool.model.patches import merge_patch
from sandpool.model.resource import Resource
from sandpool.model.times import seconds
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics

log = logger(__name__)

MESSAGE_LIMIT = 1024


class Kind(StrEnum):
    """The `type` of an Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Events(Protocol):
    """The port through which controllers emit Events."""

    def emit(
        self, resource: Resource[Any], about: Object, kind: Kind, reason: str, message: str, action: str = ""
    ) -> None: ...


class NullEvents:
    """Emits nothing, for when Events are switched off."""

    def emit(
        self, resource: Resource[Any], about: Object, kind: Kind, reason: str, message: str, action: str = ""
    ) -> None:
        return None


class _Same(NamedTuple):
    """Events with equal fields are counted as one."""

    uid: Uid
    kind: Kind
    reason: str
    message: str
    action: str


@dataclass(slots=True)
class _Pending:
    """An event that waits to be written: `count` more occurrences."""

    about: dict[str, Any]  # the involvedObject
    first: datetime
    last: datetime
    count: int = 1


@dataclass(slots=True)
class _Recorded:
    """An event that the server has."""

    name: str
    count: int
    until: float  # later than that, it is a new event


@dataclass(frozen=True, slots=True)
class Restraint:
    """Bounds of an EventRecorder."""

    waiting: int = 1000  # events on the list
    remembered: int = 4096  # events, and objects with a bucket
    burst: int = 25  # events of one object at once
    refill: float = 1 / 300  # and then one in five minutes
    same_for: float = 600.0  # seconds within which a repetition only raises a count
    timeout: float = 10.0  # of one write


class EventRecorder:
    """Writes Events to an API server. Call `emit` from anywhere and `run` once."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        metrics: Metrics,
        random: Callable[[], float],
        *,
        controller: str,
        instance: str,
        restraint: Restraint = Restraint(),
    ) -> None:
        self._api = api
        self._clock = clock
        self._random = random
        self._controller = controller
        self._instance = instance
        self._restraint = restraint
        self._waiting: OrderedDict[_Same, _Pending] = OrderedDict()
        self._recorded: OrderedDict[_Same, _Recorded] = OrderedDict()
        self._buckets: OrderedDict[Uid, TokenBucket] = OrderedDict()
        self._wake = asyncio.Event()
        self._count = metrics.events

    def emit(
        self, resource: Resource[Any], about: Object, kind: Kind, reason: str, message: str, action: str = ""
    ) -> None:
        meta = about.metadata
        same = _Same(meta.uid, kind, reason, message[:MESSAGE_LIMIT], action)
        now = self._clock.now()
        pending = self._waiting.get(same)
        if pending is not None:
            pending.count += 1
            pending.last = now
        elif not self._bucket(meta.uid).take(self._clock.monotonic()):
            self._count.labels("limited").inc()
        elif len(self._waiting) >= self._restraint.waiting:
            self._count.labels("dropped").inc()
        else:
            self._waiting[same] = _Pending(_reference(resource, about), now, now)
            self._wake.set()

    async def run(self) -> None:
        """Writes emitted events, one at a time, until cancelled."""
        while True:
            while self._waiting:
                same, pending = self._waiting.popitem(last=False)
                await self._write(same, pending)
            self._wake.clear()
            await self._wake.wait()

    async def flush(self, timeout: float) -> None:
        """Writes the events that still wait, for at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while self._waiting:
                    await self._write(*self._waiting.popitem(last=False))
        except TimeoutError:
            self._count.labels("dropped").inc(len(self._waiting))
            self._waiting.clear()

    async def _write(self, same: _Same, pending: _Pending) -> None:
        recorded = self._recorded.get(same)
        try:
            async with asyncio.timeout(self._restraint.timeout):
                if (
                    recorded is not None
                    and self._clock.monotonic() < recorded.until
                    and await self._raise(recorded, pending)
                ):
                    self._count.labels("counted").inc()
                    return
                await self._create(same, pending)
                self._count.labels("created").inc()
        except (ApiError, Unreachable, ConfigError, TimeoutError) as error:
            self._count.labels("failed").inc()
            log.debug("event not written", reason=same.reason, error=f"{type(error).__name__}: {error}")

    async def _raise(self, recorded: _Recorded, pending: _Pending) -> bool:
        """Raises the count of an event on the server. False: the event is gone."""
        count = recorded.count + pending.count
        patch = merge_patch({"count": count, "lastTimestamp": seconds(pending.last)})
        try:
            await self._api.patch(EVENTS, recorded.name, patch, pending.about["namespace"] or "default")
        except NotFound:
            return False
        recorded.count = count
        recorded.until = self._clock.monotonic() + self._restraint.same_for
        return True

    async def _create(self, same: _Same, pending: _Pending) -> None:
        namespace = pending.about["namespace"] or "default"
        name = f"{pending.about['name']}.{int(self._random() * 2**53):014x}"
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {key: value for key, value in pending.about.items() if value},
            "type": same.kind.value,
            "reason": same.reason,
            "message": same.message,
            "count": pending.count,
            "firstTimestamp": seconds(pending.first),
            "lastTimestamp": seconds(pending.last),
            "source": {"component": self._controller},
            "reportingComponent": self._controller,
            "reportingInstance": self._instance,
        }
        if same.action:
            body["action"] = same.action
        await self._api.create(EVENTS, body, namespace)
        self._recorded[same] = _Recorded(name, pending.count, self._clock.monotonic() + self._restraint.same_for)
        self._recorded.move_to_end(same)
        if len(self._recorded) > self._restraint.remembered:
            self._recorded.popitem(last=False)

    def _bucket(self, uid: Uid) -> TokenBucket:
        bucket = self._buckets.get(uid)
        if bucket is None:
            bucket = self._buckets[uid] = TokenBucket(self._restraint.refill, self._restraint.burst)
            if len(self._buckets) > self._restraint.remembered:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(uid)
        return bucket


def _reference(resource: Resource[Any], about: Object) -> dict[str, Any]:
    meta = about.metadata
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
