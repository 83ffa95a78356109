"""Watches claims: callers that wait share one watch, which stays open for later ones.

The watch begins without a revision: a server then sends what exists first, so that it does not matter which of a claim and the
watch came first. There is no background task: one of the waiting callers reads for all of them, and when it has what it waited for,
another one takes over. A watch that nobody has read for a while is opened again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from sandpool.kube.errors import Gone
from sandpool.sdk._async.resuming_watch import OpenWatch, ResumingWatch
from sandpool.sdk._async.sync_primitives import Event
from sandpool.sdk.deadline import Deadline
from sandpool.sdk.watch_lines import WatchEvent

IDLE = 20.0
"""Seconds that an unused watch stays open: less than any server or proxy that we know allows."""


class Subscription:
    """The events of one claim, by its name."""

    def __init__(self, watch: ClaimWatch) -> None:
        self._claim_watch = watch
        self.woken = Event()
        self.arrived: deque[WatchEvent | None] = deque()

    async def next(self, deadline: Deadline) -> WatchEvent | None:
        """The next event. None: something may have been missed, so read the claim itself. TimedOut if nothing comes."""
        return await self._claim_watch.next(self, deadline)

    def look(self) -> None:
        """Makes the next `next` return None."""
        self.arrived.append(None)


class ClaimWatch:
    def __init__(self, open_watch: OpenWatch) -> None:
        self._open_watch = open_watch
        self._watch: ResumingWatch | None = None
        self._read_at = 0.0
        self._lock = threading.Lock()  # never held while waiting
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._reading = False
        self._waiting: dict[Subscription, None] = {}

    @contextmanager
    def subscribe(self, name: str) -> Iterator[Subscription]:
        """The events of the claim of this name, from now on."""
        subscription = Subscription(self)
        with self._lock:
            self._subscriptions.setdefault(name, []).append(subscription)
        try:
            yield subscription
        finally:
            with self._lock:
                self._subscriptions[name].remove(subscription)
                if not self._subscriptions[name]:
                    del self._subscriptions[name]

    async def next(self, subscription: Subscription, deadline: Deadline) -> WatchEvent | None:
        try:
            while True:
                subscription.woken.clear()
                with self._lock:
                    if subscription.arrived:
                        return subscription.arrived.popleft()
                    mine, self._reading = not self._reading, True
                    if not mine:
                        self._waiting[subscription] = None
                if mine:
                    await self._read(deadline)
                else:
                    await self._wait(subscription, deadline)
        finally:
            self._wake_next_reader()

    def close(self) -> None:
        """Callers that still wait open another watch."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    async def _wait(self, subscription: Subscription, deadline: Deadline) -> None:
        try:
            await subscription.woken.wait(deadline)
        finally:
            with self._lock:
                self._waiting.pop(subscription, None)

    async def _read(self, deadline: Deadline) -> None:
        try:
            if self._watch is not None and time.monotonic() - self._read_at > IDLE:
                self.close()
            if self._watch is None:
                self._watch = ResumingWatch(self._open_watch)
            try:
                self._dispatch(await self._watch.batch(deadline))
            except Gone:
                self.close()
                self._notify_all()
        finally:
            self._read_at = time.monotonic()
            with self._lock:
                self._reading = False

    def _dispatch(self, events: list[WatchEvent]) -> None:
        with self._lock:
            meant = [
                (subscription, event) for event in events for subscription in self._subscriptions.get(_name(event), ())
            ]
            for subscription, event in meant:
                subscription.arrived.append(event)
        for subscription, _ in meant:
            subscription.woken.set()

    def _notify_all(self) -> None:
        """Something may have been missed."""
        with self._lock:
            everybody = [subscription for each in self._subscriptions.values() for subscription in each]
            for subscription in everybody:
                subscription.arrived.append(None)
        for subscription in everybody:
            subscription.woken.set()

    def _wake_next_reader(self) -> None:
        """Wakes one waiting caller, which reads from now on."""
        with self._lock:
            chosen = None if self._reading else next(iter(self._waiting), None)
        if chosen is not None:
            chosen.woken.set()


def _name(event: WatchEvent) -> str:
    return str((event.object.get("metadata") or {}).get("name", ""))
