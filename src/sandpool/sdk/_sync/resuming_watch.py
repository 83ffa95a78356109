# generated from sdk/_async/resuming_watch.py by tools/unasync.py; edit that one
# ruff: noqa: C416, SIM110, SIM117, UP028, RUF100
"""A watch that resumes from its last revision when its connection ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from sandpool.kube.errors import Unreachable
from sandpool.sdk._sync.http import Answer
from sandpool.sdk._sync.transport import sleep
from sandpool.sdk.deadline import Deadline, left
from sandpool.sdk.errors import TimedOut
from sandpool.sdk.watch_lines import WatchEvent, WatchLines

LENGTH = 300  # seconds after which the server should end a watch, which is then resumed
GRACE = 15.0  # seconds beyond that
EARLY = 0.005  # seconds by which a timer may fire early
BACKOFF = (0.1, 0.5, 2.0)  # seconds between attempts to resume a watch

OpenWatch = Callable[[Mapping[str, str]], Answer]


class ResumingWatch:
    """`open_watch` sends the request with the given query. One caller at a time; a call that is cancelled or times out loses nothing."""

    def __init__(self, open_watch: OpenWatch, since: str = "", length: float | None = None) -> None:
        """`length` is for how many seconds it is needed at most; a single read may have less time."""
        self._open_watch = open_watch
        self._length = LENGTH if length is None else max(1, round(min(LENGTH, length)))
        self._revision = since
        self._answer: Answer | None = None
        self._lines = WatchLines()
        self._began = 0.0
        self._failures = 0

    def batch(self, deadline: Deadline) -> list[WatchEvent]:
        """At least one event, and all that arrived together with it. TimedOut if there is none until then; Gone if missed events were
        compacted; Unreachable after several attempts."""
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
            if changes := [event for event in events if event.type != "BOOKMARK"]:
                return changes

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
            self._answer = self._open_watch(query)
        data = self._answer.read(timeout=LENGTH + GRACE if deadline is None else left(deadline))
        return self._lines.feed(data) if data else None

    def _resume(self, error: Unreachable | None, deadline: Deadline) -> None:
        """Pauses before it reconnects to a server that ended the stream at once."""
        self.close()
        self._failures += error is not None
        if self._failures or time.monotonic() - self._began < BACKOFF[0]:
            pause = BACKOFF[min(max(self._failures - 1, 0), len(BACKOFF) - 1)]
            sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
