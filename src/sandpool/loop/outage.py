"""Logs an outage of the API server as one line with a count, instead of one line or traceback for each call that fails.

The first failure is logged, then their number every ten seconds, and their sum when the outage is over: when a watch works again, after a
minute without a failure, or when this process ends. What failed for each object is in its reconcile history.
"""

from __future__ import annotations

from collections.abc import Callable

from sandpool.telemetry.log import logger

log = logger(__name__)

EVERY = 10.0
"""Seconds between two lines about one outage."""
QUIET = 60.0
"""Seconds without a failure after which an outage is over."""


class Outage:
    """Shared by all callers of one server. Times are of the monotonic clock, in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.failures = 0  # of the outage under way; 0: there is none
        self._monotonic = monotonic
        self._began = self._last = self._said = 0.0

    def failed(self, error: BaseException) -> None:
        now = self._monotonic()
        if self.failures and now - self._last > QUIET:
            self.end()
        self.failures += 1
        self._last = now
        words = f"{type(error).__name__}: {error}"
        if self.failures == 1:
            self._began = self._said = now
            log.warning("calls to the API server fail", error=words)
        elif now - self._said >= EVERY:
            self._said = now
            log.warning("calls to the API server still fail", error=words, **self._sum())

    def end(self) -> None:
        """The server answers again, or this process stops."""
        if self.failures:
            log.info("calls to the API server failed", **self._sum())
            self.failures = 0

    def _sum(self) -> dict[str, float]:
        return {"failures": self.failures, "seconds": round(self._last - self._began, 1)}
