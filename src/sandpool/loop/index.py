"""Secondary indexes: objects by something that a function reads off them, kept up to date change by change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Generic, TypeVar

from sandpool.model.metadata import Key, Object, Uid

T = TypeVar("T", bound=Object)
V = TypeVar("V", bound=Hashable)

_EMPTY: dict[Key, object] = {}


class Index(Generic[T, V]):
    """`values(object)` says under what the object is found: nothing, one value or several. It must be pure."""

    def __init__(self, values: Callable[[T], Iterable[V]]) -> None:
        self._values = values
        self._buckets: dict[V, dict[Key, T]] = {}

    def get(self, value: V) -> Collection[T]:
        """The objects under a value: a live view, not a copy. Take what you need before the next await."""
        bucket = self._buckets.get(value)
        return () if bucket is None else bucket.values()

    def count(self, value: V) -> int:
        return len(self._buckets.get(value, _EMPTY))

    def values(self) -> Collection[V]:
        """Everything that at least one object is found under; live, too."""
        return self._buckets.keys()

    def change(self, key: Key, old: T | None, new: T | None) -> None:
        before = () if old is None else tuple(self._values(old))
        after = () if new is None else tuple(self._values(new))
        if new is not None:
            for value in after:
                self._buckets.setdefault(value, {})[key] = new
        if before != after:
            for value in before:
                if value not in after:
                    self._remove(key, value)

    def _remove(self, key: Key, value: V) -> None:
        bucket = self._buckets[value]
        bucket.pop(key, None)  # absent if the function named the same value twice
        if not bucket:
            del self._buckets[value]


def namespace_of(obj: Object) -> tuple[str, ...]:
    return (obj.metadata.namespace,)


def controller_of(obj: Object) -> tuple[Uid, ...]:
    """The uid of the controlling owner."""
    owner = obj.metadata.controller
    return () if owner is None else (owner.uid,)


def owners_of(obj: Object) -> tuple[Uid, ...]:
    return tuple(owner.uid for owner in obj.metadata.owner_references)


def label_of(label: str) -> Callable[[Object], tuple[str, ...]]:
    """An index function: objects by the value of one label."""

    def read(obj: Object) -> tuple[str, ...]:
        value = obj.metadata.labels.get(label)
        return () if value is None else (value,)

    return read
