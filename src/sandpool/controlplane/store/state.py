"""The durable state in memory: the live records, and their keys in order.

Keys have the form `group/resource/...`. There is one bucket of sorted keys per resource; scans bisect it. No bucket's name is a prefix of
another's, so the concatenation of the sorted buckets is in key order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

from sandpool.controlplane.store.log import Loaded
from sandpool.controlplane.store.record import Change, Record
from sandpool.model.metadata import Revision

_BEYOND = "\U0010ffff"  # sorts after every character that a key may hold


def bucket_of(path: str) -> str:
    """The bucket that a key or a prefix belongs to: `group/resource/`, or "" for a prefix that spans several."""
    first = path.find("/") + 1
    second = path.find("/", first) + 1 if first else 0
    return path[:second] if second else ""


def check_key(key: str) -> None:
    bucket = bucket_of(key)
    if not bucket or len(bucket) == len(key) or key.endswith("/"):
        raise ValueError(f"a key has the form group/resource/name or group/resource/namespace/name, not {key!r}")


def check_prefix(prefix: str) -> None:
    if prefix and not prefix.endswith("/"):
        raise ValueError(f"a prefix is empty or ends with a slash, unlike {prefix!r}")


class State:
    """The live records. Only `apply` changes them, with durable changes in order."""

    def __init__(self, loaded: Loaded) -> None:
        self._live = loaded.live
        self.get: Callable[[str], Record | None] = loaded.live.get
        # The last row of a deleted key is the predecessor of the key's next row, until it is compacted.
        self._tombstones: OrderedDict[str, Revision] = loaded.tombstones
        self._keys: dict[str, list[str]] = {}
        for key in sorted(self._live):
            self._keys.setdefault(bucket_of(key), []).append(key)

    def prior(self, key: str) -> int:
        """The revision of the key's last row, which may be a deletion; 0 if there is none."""
        record = self._live.get(key)
        return record.revision if record is not None else self._tombstones.get(key, 0)

    def apply(self, change: Change) -> None:
        record = change.record
        key = record.key
        if change.deleted:
            del self._live[key]
            keys = self._keys[bucket_of(key)]
            del keys[bisect_left(keys, key)]
            self._tombstones[key] = record.revision
            return
        if change.previous is None:
            self._tombstones.pop(key, None)
            insort(self._keys.setdefault(bucket_of(key), []), key)
        self._live[key] = record

    def forget_tombstones(self, floor: Revision) -> None:
        while self._tombstones:
            key, revision = self._tombstones.popitem(last=False)
            if revision > floor:
                self._tombstones[key] = revision
                self._tombstones.move_to_end(key, last=False)
                return

    def records(self) -> Mapping[str, Record]:
        return self._live

    def count(self, prefix: str, after: str = "") -> int:
        return sum(high - low for _, low, high in self._ranges(prefix, after))

    def scan(self, prefix: str, after: str, limit: int) -> tuple[Record, ...]:
        live = self._live
        found: list[Record] = []
        for keys, low, high in self._ranges(prefix, after):
            if limit:
                high = min(high, low + limit - len(found))
            found += [live[key] for key in keys[low:high]]
            if limit and len(found) >= limit:
                break
        return tuple(found)

    def keys(self, prefix: str, after: str) -> Iterator[str]:
        for keys, low, high in self._ranges(prefix, after):
            for index in range(low, high):
                yield keys[index]

    def _ranges(self, prefix: str, after: str) -> Iterator[tuple[list[str], int, int]]:
        bucket = bucket_of(prefix)
        names = [bucket] if bucket else sorted(name for name in self._keys if name.startswith(prefix))
        for name in names:
            keys = self._keys.get(name)
            if not keys:
                continue
            whole = len(prefix) <= len(name)
            low = 0 if whole else bisect_left(keys, prefix)
            high = len(keys) if whole else bisect_left(keys, prefix + _BEYOND)
            if after:
                low = max(low, bisect_right(keys, after))
            if low < high:
                yield keys, low, high
