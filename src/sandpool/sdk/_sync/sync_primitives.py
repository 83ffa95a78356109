"""Primitives for waiting and sharing: Event, Semaphore, Shared. Written by hand in _async and in _sync.

Here everything belongs to one process with several threads; in _async, to one event loop.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from sandpool.sdk.deadline import Deadline, left
from sandpool.sdk.errors import TimedOut


class Event:
    """Once set, it wakes who waits, or who will."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    def wait(self, deadline: Deadline) -> None:
        """TimedOut if it is not set until then."""
        if not self._event.wait(left(deadline)):
            raise TimedOut("no event within the time allowed")


class Semaphore:
    """At most so many holders at once."""

    def __init__(self, most: int) -> None:
        self._free = threading.Semaphore(most)

    def acquire(self, deadline: Deadline) -> None:
        """TimedOut if none is free until then."""
        if not self._free.acquire(timeout=left(deadline)):
            raise TimedOut("no connection was free within the time allowed")

    def release(self) -> None:
        self._free.release()


class Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


class Shared(Generic[T]):
    """One instance for this process, made on first use and closed by atexit.

    A forked child makes its own. What it inherited is its parent's: it is neither used nor closed."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._held: dict[int, T] = {}  # by process
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    def get(self) -> T:
        with self._lock:
            me = os.getpid()
            if me not in self._held:
                self._held[me] = self._make()
                atexit.register(self._end, me)
            return self._held[me]

    def _forked(self) -> None:
        self._lock = threading.Lock()  # some thread of the parent may have held the old one

    def _end(self, process: int) -> None:
        if process == os.getpid() and (held := self._held.pop(process, None)) is not None:
            held.close()
