"""What becomes of claims: one watch for all who wait, kept for those who will.

The watch begins without a revision: a server then tells first what there is, so that it does not matter which of a claim and the
watch came first. Nobody reads it but those who wait: one of them does, for all the others, and when it has what it waited
for, another one goes on. A watch that nobody has read for a while is begun anew.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from sandpool.kube.errors import Gone
from sandpool.sdk._async.meeting import Bell
from sandpool.sdk._async.resumed import Asking, ResumedWatch
from sandpool.sdk.deadline import Deadline
from sandpool.sdk.watch_lines import WatchEvent

IDLE = 20.0
"""Seconds that a watch is kept for while nobody waits: less than any server or proxy that we know keeps one."""


class Letters:
    """What came for one claim, by its name."""

    def __init__(self, news: News) -> None:
        self._news = news
        self.bell = Bell()
        self.arrived: deque[WatchEvent | None] = deque()

    async def next(self, deadline: Deadline) -> WatchEvent | None:
        """What has changed next. None: something may have been missed, so look at the claim itself. TimedOut if nothing comes."""
        return await self._news.next(self, deadline)

    def look(self) -> None:
        """Next time it shall look at the claim itself."""
        self.arrived.append(None)


class News:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._watch: ResumedWatch | None = None
        self._read_at = 0.0
        self._lock = threading.Lock()  # never held while waiting
        self._letters: dict[str, list[Letters]] = {}
        self._reading = False
        self._waiting: dict[Letters, None] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[Letters]:
        """From now on, what becomes of the claim of this name."""
        letters = Letters(self)
        with self._lock:
            self._letters.setdefault(name, []).append(letters)
        try:
            yield letters
        finally:
            with self._lock:
                self._letters[name].remove(letters)
                if not self._letters[name]:
                    del self._letters[name]

    async def next(self, letters: Letters, deadline: Deadline) -> WatchEvent | None:
        try:
            while True:
                letters.bell.mute()
                with self._lock:
                    if letters.arrived:
                        return letters.arrived.popleft()
                    mine, self._reading = not self._reading, True
                    if not mine:
                        self._waiting[letters] = None
                if mine:
                    await self._read(deadline)
                else:
                    await self._wait(letters, deadline)
        finally:
            self._pass_on()

    def close(self) -> None:
        """Whoever still waits begins another watch."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    async def _wait(self, letters: Letters, deadline: Deadline) -> None:
        try:
            await letters.bell.wait(deadline)
        finally:
            with self._lock:
                self._waiting.pop(letters, None)

    async def _read(self, deadline: Deadline) -> None:
        try:
            if self._watch is not None and time.monotonic() - self._read_at > IDLE:
                self.close()
            if self._watch is None:
                self._watch = ResumedWatch(self._asking)
            try:
                self._hand_out(await self._watch.batch(deadline))
            except Gone:
                self.close()
                self._tell_all()
        finally:
            self._read_at = time.monotonic()
            with self._lock:
                self._reading = False

    def _hand_out(self, events: list[WatchEvent]) -> None:
        with self._lock:
            meant = [(letters, event) for event in events for letters in self._letters.get(_name(event), ())]
            for letters, event in meant:
                letters.arrived.append(event)
        for letters, _ in meant:
            letters.bell.ring()

    def _tell_all(self) -> None:
        """Something may have been missed."""
        with self._lock:
            everybody = [letters for each in self._letters.values() for letters in each]
            for letters in everybody:
                letters.arrived.append(None)
        for letters in everybody:
            letters.bell.ring()

    def _pass_on(self) -> None:
        """Whoever leaves makes sure that somebody reads, if anybody waits."""
        with self._lock:
            chosen = None if self._reading else next(iter(self._waiting), None)
        if chosen is not None:
            chosen.bell.ring()


def _name(event: WatchEvent) -> str:
    return str((event.object.get("metadata") or {}).get("name", ""))
