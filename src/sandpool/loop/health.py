"""Whether this process is ready, judged from the last contact of its reflectors, its lease and its server. Pure.

Ready means: every cache is filled and not stale, and it is known who holds the lease. A process that waits for the lease is
ready too, because it could take over at once. Readiness does not require leadership.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sandpool.loop.lease import Elector
from sandpool.loop.reflector import Reflector


@dataclass(frozen=True, slots=True)
class Ages:
    """Limits of readiness, in seconds."""

    silent: float = 300.0  # a server sends a bookmark about once a minute: a watch that is silent for longer is dead
    failing: float = 15.0  # a watch that has failed and is not back for so long
    lease: float = 15.0  # it is read or renewed every second or so


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of one source. `heard` is how many seconds ago it last worked; None: never."""

    name: str
    heard: float | None
    trouble: str = ""


def stale_caches(seen: Sequence[Seen], ages: Ages) -> list[str]:
    problems = []
    for one in seen:
        because = f": {one.trouble}" if one.trouble else ""
        if one.heard is None:
            problems.append(f"the cache of {one.name} is not filled{because}")
        elif one.trouble and one.heard > ages.failing:
            problems.append(f"the cache of {one.name} is {one.heard:.0f} s old{because}")
        elif one.heard > ages.silent:
            problems.append(f"nothing was heard about {one.name} for {one.heard:.0f} s")
    return problems


def unknown_lease(seen: Seen, ages: Ages) -> list[str]:
    because = f": {seen.trouble}" if seen.trouble else ""
    if seen.heard is None:
        return [f"it is not known who holds the lease {seen.name}{because}"]
    if seen.heard > ages.lease:
        return [f"it is not known since {seen.heard:.0f} s who holds the lease {seen.name}{because}"]
    return []


class Health:
    """What /readyz reports."""

    def __init__(
        self,
        reflectors: Sequence[Reflector[Any]],
        elector: Elector | None,
        monotonic: Callable[[], float],
        ages: Ages = Ages(),
    ) -> None:
        self._reflectors = reflectors
        self._elector = elector
        self._monotonic = monotonic
        self._ages = ages

    def problems(self) -> list[str]:
        """Why the process is not ready; empty if it is."""
        now = self._monotonic()
        caches = [
            Seen(
                reflector.name,
                now - reflector.last_contact if reflector.cache.synced.is_set() else None,
                _words(reflector.trouble),
            )
            for reflector in self._reflectors
        ]
        found = stale_caches(caches, self._ages)
        elector = self._elector
        # The lease is first requested once the caches are filled.
        if elector is not None and not any(one.heard is None for one in caches):
            heard = now - elector.known
            lease = Seen(elector.name, None if heard == float("inf") else heard, _words(elector.trouble))
            found += unknown_lease(lease, self._ages)
        return found


def _words(error: Exception | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}"
