# generated from sdk/_async/resumed.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""A watch that goes on where it was when its connection ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from sandpool.kube.errors import Unreachable
from sandpool.sdk._sync.http import Answer
from sandpool.sdk._sync.transport import sleep
from sandpool.sdk.deadline import Deadline, left
from sandpool.sdk.errors import TimedOut
from sandpool.sdk.watch_lines import WatchEvent, WatchLines

LENGTH = 300  # seconds after which a watch is asked to end, and is begun again
GRACE = 15.0  # seconds beyond that
EARLY = 0.005  # seconds by which a timer may be early
BACKOFF = (0.1, 0.5, 2.0)  # seconds between attempts to resume a watch

Asking = Callable[[Mapping[str, str]], Answer]


class ResumedWatch:
    """`asking` makes the request, with the query that it is given. Used by one at a time; whoever is cancelled or runs out of time
    leaves it as it was."""

    def __init__(self, asking: Asking, since: str = "", length: float | None = None) -> None:
        """`length` is how many seconds it is needed for at most; who reads may have less time."""
        self._asking = asking
        self._length = LENGTH if length is None else max(1, round(min(LENGTH, length)))
        self._revision = since
        self._answer: Answer | None = None
        self._lines = WatchLines()
        self._began = 0.0
        self._failures = 0

    def batch(self, deadline: Deadline) -> list[WatchEvent]:
        """What has changed: at least one event, and all that came together. TimedOut if there is nothing until then; Gone if
        what was missed cannot be told any more; Unreachable after several attempts."""
        while True:
            left(deadline, "nothing has changed")
            try:
                events = self._some(deadline)
            except TimedOut as error:
                if deadline is not None and deadline - time.monotonic() < EARLY:
                    raise
                self._resume(error, deadline)
                continue
            except Unreachable as error:
                if self._failures >= len(BACKOFF):
                    self.close()
                    raise
                self._resume(error, deadline)
                continue
            if events is None:
                self._resume(None, deadline)
                continue
            for event in events:
                self._revision = event.revision or self._revision
                self._failures = 0
            if told := [event for event in events if event.type != "BOOKMARK"]:
                return told

    def close(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.leave()

    def _some(self, deadline: Deadline) -> list[WatchEvent] | None:
        """Events that came; None at the end of the answer."""
        if self._answer is None:
            self._began = time.monotonic()
            self._lines = WatchLines()
            query = {"watch": "true", "resourceVersion": self._revision, "allowWatchBookmarks": "true"}
            query["timeoutSeconds"] = str(self._length)
            self._answer = self._asking(query)
        data = self._answer.read(timeout=LENGTH + GRACE if deadline is None else left(deadline))
        return self._lines.feed(data) if data else None

    def _resume(self, error: Unreachable | None, deadline: Deadline) -> None:
        """A server that ends streams at once is not asked at once."""
        self.close()
        self._failures += error is not None
        if self._failures or time.monotonic() - self._began < BACKOFF[0]:
            pause = BACKOFF[min(max(self._failures - 1, 0), len(BACKOFF) - 1)]
            sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
