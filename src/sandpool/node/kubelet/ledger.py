"""What a kubelet remembers of each pod between two looks at it, by name and uid.

Several pods may share a name: the one that the API has now, and earlier ones of which the backend still has something. An
entry lives as long as either knows its pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from sandpool.model.metadata import Key, Revision, Uid
from sandpool.node.backend import Running
from sandpool.node.kubelet.containers import Trouble


@dataclass(slots=True)
class Entry:
    bound_at: Revision | None = None  # the revision of the pod that we placed
    trouble: Trouble | None = None
    failures: int = 0  # starts that failed in a row
    held_since: datetime | None = None
    awaited: bool = False  # what it is by then will be told at the next look, which is due; nothing is being told now
    labels: Mapping[str, str] | None = None  # that the backend knows
    claims: tuple[str, ...] = ()  # uids of the claims that it uses
    evicted: str = ""  # why its backend has ended it: it is over, whatever becomes of the write that says so
    seen: Running | None = None  # as it was when Events were last made of it


class Ledger:
    def __init__(self) -> None:
        self._entries: dict[Key, dict[Uid, Entry]] = {}
        self._keys: dict[Uid, Key] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def key_of(self, uid: Uid) -> Key | None:
        return self._keys.get(uid)

    def entry(self, key: Key, uid: Uid) -> Entry:
        """The entry of that pod, new if there is none."""
        entries = self._entries.setdefault(key, {})
        found = entries.get(uid)
        if found is None:
            found = entries[uid] = Entry()
            self._keys[uid] = key
        return found

    def find(self, key: Key, uid: Uid) -> Entry | None:
        entries = self._entries.get(key)
        return None if entries is None else entries.get(uid)

    def others(self, key: Key, uid: Uid) -> Iterator[Uid]:
        """Earlier pods of that name."""
        return (other for other in self._entries.get(key, ()) if other != uid)

    def claims(self) -> set[str]:
        """All that are in use."""
        return {uid for entries in self._entries.values() for entry in entries.values() for uid in entry.claims}

    def settle(self, key: Key, uid: Uid, left: Callable[[Uid], object | None]) -> list[Uid]:
        """Forgets the pods of that name, other than `uid`, of which nothing is left, and says which."""
        entries = self._entries.get(key)
        if entries is None or (len(entries) == 1 and uid in entries):
            return []
        gone = [other for other in entries if other != uid and left(other) is None]
        for other in gone:
            del entries[other], self._keys[other]
        if not entries:
            del self._entries[key]
        return gone
