"""Leader election on a Lease: at most one process leads at a time.

Leadership is a deadline on our own clock, not a fact on the server: it ends `renew` seconds after the last successful renewal
was *sent*, whether or not the server can be reached. Others take over only after they have seen the Lease unchanged for its
whole `duration`, which is longer; that gap is the safety margin against clocks that run at different speeds. Clocks of two
machines are never compared. Every write tests the revision that it was decided on, so of two candidates one is refused.
This does not cover a Lease that is deleted by hand: a process that starts just then knows of no holder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sandpool.base.clock import Clock
from sandpool.kube.api import Api
from sandpool.kube.errors import AlreadyExists, ApiError, ConfigError, Conflict, Invalid, NotFound, Unreachable
from sandpool.loop.errors import LeadershipLost, NoPlaceForLease
from sandpool.model.core import Lease
from sandpool.model.kinds import LEASES
from sandpool.model.metadata import Revision
from sandpool.model.patches import Patch, json_patch
from sandpool.model.times import micro
from sandpool.telemetry.log import logger
from sandpool.telemetry.metrics import Metrics

log = logger(__name__)

_NEVER = float("-inf")
SHORTEST = 0.01
"""Seconds between two reads of a lease, at least: a timer may fire slightly early."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds. `retry` < `renew` < `duration`.

    When a leader is killed nobody leads for at most `duration` and one `retry`, the time that it takes another to see its last
    renewal. A leader survives a server that takes almost half of `renew` for every answer: the second renewal must be answered
    before the first has run out. What is left between `renew` and `duration` is for clocks that do not run at the same speed.
    """

    duration: float = 8.0  # others wait this long before they take over
    renew: float = 6.5  # the holder gives up this long after its last renewal
    retry: float = 1.0  # between attempts

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.renew < self.duration:
            raise ValueError(f"a lease needs retry < renew < duration, not {self.retry}, {self.renew}, {self.duration}")

    @classmethod
    def lasting(cls, duration: float) -> Terms:
        """The usual proportions."""
        return cls(duration, renew=duration * 13 / 16, retry=duration / 8)

    def next_look(self, now: float, free_at: float, draw: float) -> float:
        """Seconds that a candidate waits: not longer than until the lease is free, so that the handover is not delayed."""
        pause = self.retry * (1 + 0.2 * draw)
        return min(pause, max(free_at - now, SHORTEST)) if free_at > now else pause

    def next_renewal(self, now: float, sent: float) -> float:
        """Seconds that the holder waits after a renewal that was `sent` then. A slow answer does not delay the next renewal."""
        return max(0.0, sent + self.retry - now)


def why_lost(holder: str | None, trouble: Exception | None, silent: float) -> str:
    """Why a lease was lost. `holder`: who has it instead, empty for nobody; None: as far as known it is still ours.
    `silent`: seconds since the last confirmed renewal was sent."""
    if holder is not None:
        return f"{holder or 'nobody'} holds it now"
    if trouble is None:
        return f"this process did not run for {silent:.1f} s: it has too little CPU, was stopped, or the machine slept"
    return f"it could not be renewed for {silent:.1f} s: {type(trouble).__name__}: {trouble}"


class Elector:
    """Acquires and renews a Lease. `identity` must be unique per process start: two processes of one identity would both lead."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        metrics: Metrics,
        random: Callable[[], float],
        *,
        name: str,
        namespace: str,
        identity: str,
        terms: Terms = Terms(),
    ) -> None:
        self.name = name
        self.identity = identity
        self.known = _NEVER  # when the server last said who holds the lease, by the monotonic clock
        self.trouble: Exception | None = None  # why the last attempt failed; None if it did not
        self._api = api
        self._clock = clock
        self._random = random
        self._namespace = namespace
        self._terms = terms
        self._until = _NEVER  # we lead until then
        self._asleep_at = clock.now()  # nor past this wall-clock time: the monotonic clock stops while a machine sleeps
        self._lease: Lease | None = None  # as we last read or wrote it
        self._cut_off = False  # a write was sent and its answer is no longer awaited
        self._seen: tuple[Revision | None, float] = (
            None,
            0.0,
        )  # its revision (0: absent), and when that was first observed
        self._promised = terms.duration
        self._others = False  # another process held it when it was last observed
        self._gauge = metrics.leader.labels(name)
        self._gauge.set_function(lambda: float(self.leading))

    @property
    def leading(self) -> bool:
        return self._clock.monotonic() < self._until and self._clock.now() < self._asleep_at

    async def acquire(self) -> None:
        """Returns once this process leads."""
        while not await self._tried(self._terms.renew):
            free_at = self._seen[1] + self._promised if self._others else _NEVER
            await self._clock.sleep(self._terms.next_look(self._clock.monotonic(), free_at, self._random()))
        log.info("lease acquired", lease=self.name, identity=self.identity)

    async def hold(self) -> None:
        """Renews until that fails for too long, or another process holds the lease; then raises LeadershipLost."""
        terms, clock, renewed = self._terms, self._clock, True
        while self.leading:
            now = clock.monotonic()
            pause = terms.next_renewal(now, self._until - terms.renew) if renewed else terms.retry
            await clock.sleep(min(pause, self._until - now))
            left = self._until - clock.monotonic()
            renewed = left > 0 and await self._tried(left)
            if not renewed and self._lost():
                break
        asleep = (clock.now() - self._asleep_at).total_seconds()
        silent = terms.renew + max(clock.monotonic() - self._until, asleep)
        self._until = _NEVER
        holder = (self._lease.spec.holder_identity or "") if self._lost() and self._lease is not None else None
        why = why_lost(holder, self.trouble, silent)
        raise LeadershipLost(
            f"lease {self._namespace}/{self.name} is no longer held by {self.identity} ({why}); all writes stop"
        )

    async def release(self) -> None:
        """Releases the lease, so that another process can take over at once. Call it after everything that writes has stopped; a failure is only
        logged."""
        was, self._until = self.leading or self._cut_off, _NEVER
        if not was:
            return
        try:
            async with asyncio.timeout(
                self._terms.renew / 2
            ):  # a busy server may be slow, but the shutdown waits for this
                if self._lease is None:
                    self._observe(await self._api.get(LEASES, self.name, self._namespace))
                if self._lost():
                    return
                await self._patch(
                    {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro(self._clock.now())}
                )
            log.info("lease released", lease=self.name, identity=self.identity)
        except (ApiError, Unreachable, ConfigError, TimeoutError) as error:
            log.warning("lease not released", lease=self.name, error=f"{type(error).__name__}: {error}")

    async def _tried(self, limit: float) -> bool:
        """One attempt to take or renew the lease, given up after `limit` seconds."""
        self._cut_off = False
        try:
            async with asyncio.timeout(limit):
                leads = await self._attempt()
            self.trouble = None
            return leads
        except asyncio.CancelledError:
            self._lease, self._cut_off = None, True
            raise
        except (ApiError, Unreachable, ConfigError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                error = TimeoutError(f"the API server did not answer within {limit:.1f} s")
            self._lease, self.trouble = None, error  # its outcome is unknown: read the lease again
            raced = isinstance(error, (AlreadyExists, Conflict, NotFound, Invalid)) and not error.causes
            (log.debug if raced else log.warning)("lease attempt failed", lease=self.name, error=repr(error))
        return False

    async def _attempt(self) -> bool:
        if self._lease is None or not self._ours(self._lease):
            try:
                self._observe(await self._api.get(LEASES, self.name, self._namespace))
            except NotFound:
                self._sight(Revision(0))
                return not self._others_lead() and await self._create()
        assert self._lease is not None
        if not self._ours(self._lease) and self._others_lead():
            return False
        sent = self._clock.monotonic(), self._clock.now()
        self._observe(await self._patch(self._spec(self._lease)))
        self._lead_from(*sent)
        return True

    async def _create(self) -> bool:
        sent = self._clock.monotonic(), self._clock.now()
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self.name, "namespace": self._namespace},
            "spec": self._spec(None),
        }
        try:
            self._observe(await self._api.create(LEASES, body, self._namespace))
        except NotFound as error:
            raise NoPlaceForLease(
                f"the namespace {self._namespace} does not exist, and the lease {self.name} belongs into it: "
                f"create it (kubectl create namespace {self._namespace}) or choose another"
            ) from error
        self._lead_from(*sent)
        return True

    def _lead_from(self, sent: float, moment: datetime) -> None:
        self._until = sent + self._terms.renew
        self._asleep_at = moment + timedelta(seconds=self._terms.renew)

    def _observe(self, lease: Lease) -> None:
        self._lease = lease
        self._others = bool(lease.spec.holder_identity) and not self._ours(lease)
        self._promised = max(self._terms.duration, float(lease.spec.lease_duration_seconds or 0))
        self._sight(lease.metadata.revision)

    def _sight(self, revision: Revision) -> None:
        """Records since when, by our own clock, the lease has had this revision. Called after the answer arrived: the write
        itself happened before."""
        self.known = self._clock.monotonic()
        if revision != self._seen[0]:
            self._seen = (revision, self._clock.monotonic())

    def _ours(self, lease: Lease) -> bool:
        return lease.spec.holder_identity == self.identity

    def _lost(self) -> bool:
        return self._lease is not None and not self._ours(self._lease)

    def _others_lead(self) -> bool:
        """Whether another process holds the lease, or held it until it was deleted, and its duration is not over yet."""
        return self._others and self._clock.monotonic() < self._seen[1] + self._promised

    def _spec(self, lease: Lease | None) -> dict[str, Any]:
        now = micro(self._clock.now())
        spec: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._terms.duration)),
            "renewTime": now,
        }
        if lease is None or not self._ours(lease):
            spec["acquireTime"] = now
            spec["leaseTransitions"] = 0 if lease is None else (lease.spec.lease_transitions or 0) + 1
        return spec

    async def _patch(self, fields: dict[str, Any]) -> Lease:
        assert self._lease is not None
        return await self._api.patch(LEASES, self.name, _write(self._lease, fields), self._namespace)


def _write(lease: Lease, fields: dict[str, Any]) -> Patch:
    """Sets these fields of spec if the lease still has the observed uid and revision."""
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": lease.metadata.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": lease.metadata.resource_version},
    ]
    if lease.spec == type(lease.spec)():  # there may be no spec to add to
        operations.append({"op": "add", "path": "/spec", "value": {}})
    operations += [{"op": "add", "path": f"/spec/{name}", "value": value} for name, value in fields.items()]
    return json_patch(operations)
