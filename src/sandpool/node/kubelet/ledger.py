"""The kubelet's in-memory state of each pod between two reconciles, by name and uid.

Several pods may share a name: the one that is in the API now, and earlier ones that the backend has not fully removed. An entry is kept
while its pod is in the API or in the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from sandpool.model.metadata import Key, Revision, Uid
from sandpool.node.backend import PodStatus
from sandpool.node.kubelet.containers import Trouble


@dataclass(slots=True)
class Entry:
    bound_at: Revision | None = None  # the revision of the pod that we placed
    trouble: Trouble | None = None
    failures: int = 0  # starts that failed in a row
    held_since: datetime | None = None
    awaited: bool = False  # a reconcile that will publish its status is scheduled; no write is in progress
    labels: Mapping[str, str] | None = None  # last passed to the backend
    claims: tuple[str, ...] = ()  # uids of the claims that it uses
    evicted: str = ""  # why the backend evicted it; it counts as ended even if the status write fails
    seen: PodStatus | None = None  # as of the last Events


class Ledger:
    def __init__(self) -> None:
        self.entries: dict[Key, dict[Uid, Entry]] = {}
        self._keys: dict[Uid, Key] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def key_of(self, uid: Uid) -> Key | None:
        return self._keys.get(uid)

    def entry(self, key: Key, uid: Uid) -> Entry:
        """The entry of that pod; created if there is none."""
        entries = self.entries.setdefault(key, {})
        found = entries.get(uid)
        if found is None:
            found = entries[uid] = Entry()
            self._keys[uid] = key
        return found

    def find(self, key: Key, uid: Uid) -> Entry | None:
        entries = self.entries.get(key)
        return None if entries is None else entries.get(uid)

    def others(self, key: Key, uid: Uid) -> Iterator[Uid]:
        """Earlier pods of that name."""
        return (other for other in self.entries.get(key, ()) if other != uid)

    def claims(self) -> set[str]:
        """Uids of all claims in use."""
        return {uid for entries in self.entries.values() for entry in entries.values() for uid in entry.claims}

    def settle(self, key: Key, uid: Uid, left: Callable[[Uid], object | None]) -> list[Uid]:
        """Forgets pods of that name, other than `uid`, for which `left` returns None. Returns their uids."""
        entries = self.entries.get(key)
        if entries is None or (len(entries) == 1 and uid in entries):
            return []
        gone = [other for other in entries if other != uid and left(other) is None]
        for other in gone:
            del entries[other], self._keys[other]
        if not entries:
            del self.entries[key]
        return gone
