"""Secondary indexes of a cache: objects by a value that a function computes from them, updated with every change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Generic, TypeVar

from sandpool.model.metadata import Key, Object, Uid

T = TypeVar("T", bound=Object)
V = TypeVar("V", bound=Hashable)


class Index(Generic[T, V]):
    """`values(object)` returns the values under which the object is found: none, one or several. It must be pure.

    Most values of most indexes lead to one object (a pod by its sandbox): such a value holds the object itself, and a dict of
    objects by key once there are more.
    """

    def __init__(self, values: Callable[[T], Iterable[V]]) -> None:
        self.reads = values
        self._found: dict[V, T | dict[Key, T]] = {}

    def get(self, value: V) -> Collection[T]:
        """The objects under a value, perhaps a live view. Take what you need before the next await."""
        found = self._found.get(value)
        if found is None:
            return ()
        return found.values() if isinstance(found, dict) else (found,)

    def count(self, value: V) -> int:
        found = self._found.get(value)
        if found is None:
            return 0
        return len(found) if isinstance(found, dict) else 1

    def values(self) -> Collection[V]:
        """All values with at least one object, as a live view."""
        return self._found.keys()

    def change(self, key: Key, old: T | None, new: T | None) -> None:
        before = () if old is None else tuple(self.reads(old))
        after = () if new is None else tuple(self.reads(new))
        if new is not None:
            for value in after:
                self._put(key, value, new)
        if before != after:
            for value in before:
                if value not in after:
                    self._remove(key, value)

    def _put(self, key: Key, value: V, obj: T) -> None:
        found = self._found.setdefault(value, obj)
        if found is obj:
            return
        if isinstance(found, dict):
            found[key] = obj
        elif (its := found.metadata.key) == key:
            self._found[value] = obj
        else:
            self._found[value] = {its: found, key: obj}

    def _remove(self, key: Key, value: V) -> None:
        found = self._found.get(value)
        if isinstance(found, dict):
            found.pop(key, None)  # absent if the function named the same value twice
            if not found:
                del self._found[value]
        elif found is not None and found.metadata.key == key:
            del self._found[value]


def namespace_of(obj: Object) -> tuple[str, ...]:
    return (obj.metadata.namespace,)


def controller_of(obj: Object) -> tuple[Uid, ...]:
    """The uid of the controlling owner."""
    owners = obj.metadata.owner_references
    if owners and owners[0].controller:  # the usual case
        return (owners[0].uid,)
    owner = obj.metadata.controller
    return () if owner is None else (owner.uid,)
