"""The gate before a decision: has the cache seen what this key wrote last?

`Writes` makes a cache show our own writes at once; the gate is for what it cannot show: a write past it, a change that somebody
told us the revision of, or a decision over another cache than the one written to. Deletes have no revision: tombstones in
the cache stand for them. Entries expire, so that a revision that never comes cannot hold a key for ever.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from sandpool.base.clock import Clock
from sandpool.loop.cache import Cache
from sandpool.loop.errors import Unobserved
from sandpool.model.metadata import Revision

K = TypeVar("K", bound=Hashable)


class Gate(Generic[K]):
    def __init__(self, clock: Clock, cache: Cache[Any], *, expires: float = 300.0) -> None:
        self._clock = clock
        self._cache = cache
        self._expires = expires
        self._written: dict[K, tuple[Revision, float]] = {}

    def record(self, key: K, revision: Revision) -> None:
        """`key` must not be decided on before the cache has reached `revision`."""
        known, _ = self._written.get(key, (revision, 0.0))
        self._written[key] = (max(known, revision), self._clock.monotonic() + self._expires)

    def seen_by(self, key: K, revision: Revision) -> bool:
        """Whether a cache at `revision` shows everything that was recorded for the key."""
        written = self._written.get(key)
        if written is None:
            return True
        if revision >= written[0] or self._clock.monotonic() >= written[1]:
            del self._written[key]
            return True
        return False

    def ensure(self, key: K) -> None:
        """Raises Unobserved, which makes the controller wait for the cache and come back, unless all is seen."""
        if not self.seen_by(key, self._cache.revision):
            raise Unobserved(key, self._written[key][0], self._cache)

    def forget(self, key: K) -> None:
        self._written.pop(key, None)

    def __len__(self) -> int:
        return len(self._written)
