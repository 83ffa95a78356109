"""One lock for each claim: pods that share a claim create its directory once, and no claim waits for another's file system to be made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ClaimLocks:
    """Locks by the uid of a claim, which exist while a thread holds one or waits for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}  # with the number of threads that use it

    def __len__(self) -> int:
        return len(self._locks)

    @contextmanager
    def hold(self, uid: str) -> Iterator[None]:
        """Waits for other threads with the same claim only."""
        with self._guard:
            lock, users = self._locks.get(uid, (threading.Lock(), 0))
            self._locks[uid] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                _, users = self._locks[uid]
                if users > 1:
                    self._locks[uid] = lock, users - 1
                else:
                    del self._locks[uid]
