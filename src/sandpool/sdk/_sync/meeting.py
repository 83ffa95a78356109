"""Where several users of one thing meet: who waits for whom, and what all of them share. Written by hand in _async and in _sync.

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


class Bell:
    """Rung once or more, it wakes who waits, or who will."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        self._rung.set()

    def mute(self) -> None:
        self._rung.clear()

    def wait(self, deadline: Deadline) -> None:
        """TimedOut if nobody rings until then."""
        if not self._rung.wait(left(deadline)):
            raise TimedOut("nothing was heard within the time allowed")


class Turns:
    """So many at once, and no more."""

    def __init__(self, most: int) -> None:
        self._free = threading.Semaphore(most)

    def take(self, deadline: Deadline) -> None:
        """TimedOut if none is free until then."""
        if not self._free.acquire(timeout=left(deadline)):
            raise TimedOut("no connection was free within the time allowed")

    def give_back(self) -> None:
        self._free.release()


class Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


class Common(Generic[T]):
    """One of its kind for this process, made when it is first asked for and closed when the process ends in order.

    A process that was forked off makes its own. What it inherited is its parent's: it is neither used nor closed."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._held: dict[int, T] = {}  # by process
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    def here(self) -> T:
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
