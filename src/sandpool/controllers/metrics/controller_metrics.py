"""The product's metrics: claims, pools and sandboxes. Computed from the events of three caches, so that no controller depends on it.

An event costs the same however many objects there are; a scrape costs as much as there are pools and groups of sandboxes with equal labels.
Objects that a cache held when it was first filled existed before this process: they are counted as present, never as new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sandpool.base.clock import Clock
from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Cause
from sandpool.controllers.metrics.claims import LAUNCHES, ClaimTimes
from sandpool.controllers.metrics.names import MOST, Names
from sandpool.controllers.metrics.pools import PoolMetrics
from sandpool.controllers.metrics.sandboxes import SandboxMetrics, claim_of
from sandpool.loop.cache import Cache
from sandpool.model.claim import SandboxClaim
from sandpool.model.metadata import Key
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry.families import Family
from sandpool.telemetry.metrics import Metrics, Series


def _always() -> bool:
    return True


class ControllerMetrics:
    """The metrics of all controllers. `leading`: whether this process is the leader; others would count everything a second time. `most`: how many
    names of pools, templates and namespaces become label values."""

    def __init__(
        self,
        claims: Cache[SandboxClaim],
        sandboxes: Cache[Sandbox],
        pools: Cache[SandboxWarmPool],
        assigner: Assigner,
        clock: Clock,
        metrics: Metrics,
        *,
        leading: Callable[[], bool] = _always,
        most: int = MOST,
    ) -> None:
        self._claims, self._sandboxes, self._pools = claims, sandboxes, pools
        self._metrics = metrics
        self._leading = leading
        self._series = Series()
        self.times = ClaimTimes(sandboxes, clock, metrics, self._series)
        self._sandbox_metrics = SandboxMetrics(clock, metrics, self._series)
        self._pool_metrics = PoolMetrics(pools, assigner)
        self._names = Names(
            pools,
            end_pool=self._end_pool,
            end_template=self._end_template,
            end_namespace=self._end_namespace,
            lives=self._sandbox_metrics.lives,
            most=most,
        )
        self._connected = False  # objects that are delivered on subscribing are not new
        pools.subscribe(self._pool)
        sandboxes.subscribe(self._sandbox)
        claims.subscribe(self._claim)
        self._connected = True
        metrics.show(self._read)

    @property
    def timed(self) -> int:
        """How many claims and sandboxes are being timed."""
        return len(self.times) + len(self._sandbox_metrics)

    def started_cold(self, claim: SandboxClaim, cause: Cause) -> None:
        """A claim began a cold start, for this cause."""
        self._pool_metrics.started_cold(claim, cause, self._names)

    def _pool(self, old: SandboxWarmPool | None, new: SandboxWarmPool | None) -> None:
        self._names.step(old, new)
        if old is None and new is not None and (key := new.metadata.key) in self._names.pools:
            self._pool_metrics.begin(key)
            for launch in LAUNCHES:
                self._metrics.claim_seconds.labels(*key, launch)

    def _sandbox(self, old: Sandbox | None, new: Sandbox | None) -> None:
        before, after = self._sandbox_metrics.step(old, new)
        if new is None or after is None:
            if old is not None:
                self._sandbox_metrics.end(old)
            return
        if before is None:
            if not self._live(self._sandboxes):
                return
            self._sandbox_metrics.begin(new, after)
        else:
            self._sandbox_metrics.follow(new, after, self._names, self._leading())
        if after.owner == SandboxClaim.kind and (before is None or before.owner != SandboxClaim.kind):
            self._handed(new)

    def _handed(self, sandbox: Sandbox) -> None:
        """Counts a handed-over sandbox, if the claim exists with the uid of the owner reference: anybody can write a reference."""
        owner = claim_of(sandbox)
        if owner is None or not self._leading():
            return
        claim = self._claims.get(Key(sandbox.metadata.namespace, owner.name))
        if claim is not None and claim.metadata.uid == owner.uid:
            self._pool_metrics.handed(sandbox, claim, self._names)

    def _claim(self, old: SandboxClaim | None, new: SandboxClaim | None) -> None:
        self._pool_metrics.step(old, new)
        if new is None:
            if old is not None:
                self.times.end(old)
        elif old is not None:
            self.times.follow(new, self._names, self._leading())
        elif self._live(self._claims):
            self.times.begin(new)
            self.times.follow(
                new, self._names, self._leading()
            )  # it may be Ready already, and timed by the inline hook
            self._bound_inline(new)

    def _bound_inline(self, claim: SandboxClaim) -> None:
        """A new claim that is bound already. If the event of its sandbox came first, its claim was unknown then."""
        bound = claim.status.sandbox
        sandbox = None if bound is None else self._sandboxes.get(Key(claim.metadata.namespace, bound.name))
        owner = claim_of(sandbox)
        if sandbox is not None and owner is not None and owner.uid == claim.metadata.uid:
            self._handed(sandbox)

    def _live(self, cache: Cache[SandboxClaim] | Cache[Sandbox]) -> bool:
        return self._connected and cache.synced.is_set()

    def _read(self) -> Iterator[tuple[Family, Mapping[tuple[str, ...], float]]]:
        if self._leading():
            yield from self._pool_metrics.read(self._names)
            yield from self._sandbox_metrics.read(self._names)

    def _end_pool(self, key: Key) -> None:
        self._pool_metrics.end(key)
        self._series.forget()
        self._metrics.claim_seconds.remove_by_labels({"namespace": key.namespace, "pool": key.name})

    def _end_template(self, name: str) -> None:
        metrics = self._metrics
        self._series.forget()
        for histogram in (
            metrics.claim_startup,
            metrics.claim_controller_startup,
            metrics.claim_client_startup,
            metrics.creation,
        ):
            histogram.remove_by_labels({"sandbox_template": name})

    def _end_namespace(self, name: str) -> None:
        self._series.forget()
        self._metrics.creation.remove_by_labels({"namespace": name})
