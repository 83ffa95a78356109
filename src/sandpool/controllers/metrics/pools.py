"""Metrics of pools. What the assigner counts is read at each scrape, once per pool; the rest is counted here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandpool.controllers.assigner.assigner import Assigner
from sandpool.controllers.assigner.facts import Cause
from sandpool.controllers.metrics.names import Names, tally
from sandpool.controllers.metrics.sandboxes import is_ready, launch_type
from sandpool.loop.cache import Cache
from sandpool.model import labels
from sandpool.model.claim import SandboxClaim
from sandpool.model.labels import LaunchType
from sandpool.model.metadata import Key
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.telemetry import families
from sandpool.telemetry.families import Family

Series = dict[tuple[str, ...], float]


class PoolMetrics:
    """Hits and misses of each pool that has a name of its own in the metrics, or of all others together."""

    def __init__(self, pools: Cache[SandboxWarmPool], assigner: Assigner) -> None:
        self._pools = pools
        self._assigner = assigner
        self._claimed: dict[Key, int] = {}
        self._hits: Series = {}
        self._misses: Series = {}
        self._handed: Series = {}
        self._cold: Series = {}

    def step(self, old: SandboxClaim | None, new: SandboxClaim | None) -> None:
        before, after = _held(old), _held(new)
        if before != after:
            for pool, by in ((after, 1), (before, -1)):
                if pool is not None:
                    tally(self._claimed, pool, by)

    def begin(self, pool: tuple[str, str]) -> None:
        """Counters start at 0, so that graphs have no gaps."""
        self._hits.setdefault(pool, 0)
        self._misses.setdefault(pool, 0)

    def handed(self, sandbox: Sandbox, claim: SandboxClaim, names: Names) -> None:
        """The claim got this sandbox just now."""
        key, launch = claim.pool_key, launch_type(sandbox)
        where, pool = names.pool(key)
        condition = "ready" if is_ready(sandbox) else "not_ready"
        creator = labels.created_by(sandbox.metadata.labels.get(labels.CREATED_BY, "")).value
        _up(self._handed, (where, names.template(key), launch, pool, condition, creator))
        if launch == LaunchType.WARM:
            _up(self._hits, (where, pool))
        elif not claim.spec.customised:
            _up(self._misses, (where, pool))

    def started_cold(self, claim: SandboxClaim, cause: Cause, names: Names) -> None:
        """A cold start of the claim began, whichever sandbox it gets in the end."""
        _up(self._cold, (*names.pool(claim.pool_key), cause.value))

    def end(self, pool: Key) -> None:
        self._hits.pop(pool, None)
        self._misses.pop(pool, None)
        for line in [line for line in self._handed if (line[0], line[3]) == pool]:
            del self._handed[line]
        for line in [line for line in self._cold if line[:2] == pool]:
            del self._cold[line]

    def read(self, names: Names) -> Iterator[tuple[Family, Mapping[tuple[str, ...], float]]]:
        shown: dict[Family, Series] = {family: {} for family in _GAUGES}
        for pool in self._pools:
            meta = pool.metadata
            counts, outlook = self._assigner.counts(meta.uid), self._assigner.outlook(meta.uid)
            values = (
                pool.spec.replicas,
                counts.ready,
                counts.warming,
                counts.reserved,
                counts.waiting,
                outlook.oldest,
                outlook.expected or 0.0,
                outlook.rate,
                self._claimed.get(meta.key, 0),
            )
            line = names.pool(meta.key)
            for family, value in zip(_GAUGES, values, strict=True):
                if family in _LONGEST:
                    shown[family][line] = max(shown[family].get(line, 0.0), value)
                else:
                    _up(shown[family], line, value)
        yield from shown.items()
        yield families.POOL_HITS, self._hits
        yield families.POOL_MISSES, self._misses
        yield families.POOL_COLD_STARTS, self._cold
        yield families.CONTRACT_CLAIMS, self._handed


_GAUGES = (
    families.POOL_DESIRED,
    families.POOL_READY,
    families.POOL_WARMING,
    families.POOL_RESERVED,
    families.POOL_WAITING,
    families.POOL_OLDEST_WAIT,
    families.POOL_EXPECTED_WAIT,
    families.POOL_REFILL_RATE,
    families.POOL_CLAIMED,
)

_LONGEST = (families.POOL_OLDEST_WAIT, families.POOL_EXPECTED_WAIT)
"""Gauges of which the maximum is shown, not the sum, where several pools share a series."""


def _held(claim: SandboxClaim | None) -> Key | None:
    """The pool of a claim that holds a sandbox."""
    return None if claim is None or claim.status.sandbox is None else claim.pool_key


def _up(series: Series, line: tuple[str, ...], by: float = 1) -> None:
    series[line] = series.get(line, 0) + by
