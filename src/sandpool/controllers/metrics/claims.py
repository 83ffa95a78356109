"""Times claims: from the event with which this process first saw a claim until the one in which it is Ready.

Each claim is timed once. Not timed: claims that existed before this process started (after a restart nobody knows how long
they have waited), and claims that have been Ready before. The contract also has start times that clients write into annotations;
they are numbers, never labels, and one that cannot be true is left out.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sandpool.base.clock import Clock
from sandpool.controllers.metrics.names import Names
from sandpool.controllers.metrics.sandboxes import launch_type
from sandpool.loop.cache import Cache
from sandpool.model import labels, times
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import is_true
from sandpool.model.labels import LaunchType
from sandpool.model.metadata import Key, Uid
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.metrics import Metrics, Series

NO_SANDBOX = "unknown"
EARLIEST = timedelta(hours=1)
"""A request time further than this before the claim's creation is not believed: clocks differ, but not by that much."""


def is_ready(claim: SandboxClaim) -> bool:
    return is_true(claim.status.conditions, Type.READY)


class ClaimTimes:
    """Observes the time to Ready of each claim into histograms."""

    def __init__(self, sandboxes: Cache[Sandbox], clock: Clock, metrics: Metrics, series: Series) -> None:
        self._sandboxes = sandboxes
        self._clock = clock
        self._metrics = metrics
        self._series = series
        self._since: dict[Uid, float] = {}

    def __len__(self) -> int:
        """How many claims are being timed."""
        return len(self._since)

    def begin(self, claim: SandboxClaim) -> None:
        """Starts timing the claim, unless it is timed already: an inline hook may know of it before the cache."""
        if not is_ready(claim) and not claim.metadata.annotations.get(labels.CLAIM_FIRST_READY_AT):
            self._since.setdefault(claim.metadata.uid, self._clock.monotonic())

    def follow(self, claim: SandboxClaim, names: Names, counted: bool) -> None:
        uid = claim.metadata.uid
        if uid in self._since and is_ready(claim):
            seconds = self._clock.monotonic() - self._since.pop(uid)
            if counted:
                self._count(claim, seconds, names)

    def end(self, claim: SandboxClaim) -> None:
        self._since.pop(claim.metadata.uid, None)

    def _count(self, claim: SandboxClaim, seconds: float, names: Names) -> None:
        metrics, key, launch = self._metrics, claim.pool_key, self._launch(claim)
        series = self._series.of
        series(metrics.claim_seconds, *names.pool(key), launch).observe(seconds)
        by = (launch, names.template(key))
        series(metrics.claim_controller_startup, *by).observe(seconds * 1e3)
        now, notes = self._clock.now(), claim.metadata.annotations
        asked = elapsed(notes.get(labels.CLIENT_FIRST_REQUESTED_AT), claim, now)
        if asked is not None:
            series(metrics.claim_client_startup, *by).observe(asked * 1e3)
        # Without a webhook that records it, a claim counts as admitted when it is first observed.
        admission = notes.get(labels.WEBHOOK_FIRST_OBSERVED_AT)
        admitted = elapsed(admission, claim, now) if admission else seconds
        if admitted is not None:
            series(metrics.claim_startup, *by).observe(admitted * 1e3)

    def _launch(self, claim: SandboxClaim) -> str:
        bound = claim.status.sandbox
        sandbox = None if bound is None else self._sandboxes.get(Key(claim.metadata.namespace, bound.name))
        return NO_SANDBOX if sandbox is None else launch_type(sandbox)


def elapsed(start: str | None, claim: SandboxClaim, now: datetime) -> float | None:
    """Seconds since an annotated time, or None if it is implausible."""
    if not start:
        return None
    try:
        moment = times.parse(start)
    except times.TimeError:
        return None
    created = claim.metadata.creation_timestamp
    if moment > now or (created is not None and moment < created - EARLIEST):
        return None
    return (now - moment).total_seconds()


LAUNCHES = tuple(launch.value for launch in LaunchType)
