"""Which names of pools, templates and namespaces may be label values of a metric: at most so many of each.

A name is released when its object is gone; objects beyond the bound are counted together as OTHER. So whoever
creates objects cannot create an unbounded number of series, whatever annotations say.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from sandpool.loop.cache import Cache
from sandpool.model.metadata import Key
from sandpool.model.pool import SandboxWarmPool

N = TypeVar("N", bound=Hashable)

MOST = 256
OTHER = "__other__"
UNKNOWN = "__unknown__"


class BoundedNames(Generic[N]):
    """At most `most` names at once. `alive`: whether an object of that name still exists; `end`: called when its series may be removed."""

    def __init__(self, alive: Callable[[N], bool], end: Callable[[N], object], most: int = MOST) -> None:
        self._alive = alive
        self._end = end
        self._most = most
        self._names: dict[N, None] = {}

    def __contains__(self, name: N) -> bool:
        return name in self._names

    def admit(self, name: N) -> bool:
        """Whether the name may be a label value. When all places are taken, a name whose object is gone is dropped."""
        if name in self._names:
            return True
        if len(self._names) >= self._most:
            dead = next((one for one in self._names if not self._alive(one)), None)
            if dead is None:
                return False
            self.drop(dead)
        self._names[name] = None
        return True

    def drop(self, name: N) -> None:
        if name in self._names:
            del self._names[name]
            self._end(name)


class Names:
    """The names of pools, their templates and namespaces. Pools and templates are dropped with their objects, namespaces when room is needed."""

    def __init__(
        self,
        pools: Cache[SandboxWarmPool],
        *,
        end_pool: Callable[[Key], object],
        end_template: Callable[[str], object],
        end_namespace: Callable[[str], object],
        lives: Callable[[str], bool],  # whether anything is left in a namespace
        most: int = MOST,
    ) -> None:
        self._cache = pools
        self._users: dict[str, int] = {}  # how many pools refer to a template of this name
        self._users_here: dict[Key, int] = {}  # and how many of one namespace
        self.pools: BoundedNames[Key] = BoundedNames(lambda key: pools.get(key) is not None, end_pool, most)
        self.templates: BoundedNames[str] = BoundedNames(lambda name: name in self._users, end_template, most)
        self.namespaces: BoundedNames[str] = BoundedNames(lives, end_namespace, most)

    def step(self, old: SandboxWarmPool | None, new: SandboxWarmPool | None) -> None:
        before, after = _template(old), _template(new)
        if before != after:
            for template, by in ((after, 1), (before, -1)):
                if template is not None:
                    tally(self._users, template.name, by)
                    tally(self._users_here, template, by)
            if after is not None:
                self.templates.admit(after.name)
            if before is not None and before.name not in self._users:
                self.templates.drop(before.name)
        if new is None and old is not None:
            self.pools.drop(old.metadata.key)
        elif old is None and new is not None:
            self.pools.admit(new.metadata.key)

    def pool(self, key: Key) -> tuple[str, str]:
        """Namespace and name, as labels."""
        if key in self.pools:
            return key
        return (OTHER, OTHER) if self._cache.get(key) is not None else (UNKNOWN, UNKNOWN)

    def template(self, pool: Key) -> str:
        """The template that the pool refers to."""
        found = self._cache.get(pool)
        return UNKNOWN if found is None else self._template(found.spec.sandbox_template_ref.name)

    def template_named(self, namespace: str, name: str, otherwise: str) -> str:
        """The name if a pool of the namespace refers to such a template: an annotation alone proves nothing."""
        return self._template(name) if Key(namespace, name) in self._users_here else otherwise

    def namespace(self, name: str) -> str:
        return name if self.namespaces.admit(name) else OTHER

    def _template(self, name: str) -> str:
        return name if name in self.templates else OTHER


def _template(pool: SandboxWarmPool | None) -> Key | None:
    return None if pool is None else pool.template_key


def tally(counts: dict[N, int], name: N, by: int) -> None:
    """Counts, and forgets what is no longer there."""
    left = counts.get(name, 0) + by
    if left:
        counts[name] = left
    else:
        counts.pop(name, None)
