"""What the proxy did, in numbers, and a line of log for what it refused: some, never more than a reader wants."""

from __future__ import annotations

from collections import Counter

from sandpool.base.clock import Clock
from sandpool.node.network.egress.refusal import Refusal
from sandpool.node.network.egress.request import Request
from sandpool.node.network.pace import Bucket
from sandpool.telemetry.log import logger

log = logger(__name__)
_LINES = 5  # at once for a pod, and then one in ten seconds
_LINE_RATE = 0.1

Counts = Counter[str]
"""By outcome: `connected`, or the reason of a refusal. A closed set of words."""


class Account:
    """Of one pod. `counts` are those of all pods."""

    def __init__(self, pod: str, counts: Counts, clock: Clock) -> None:
        self._pod = pod
        self._counts = counts
        self._lines = Bucket(clock, _LINE_RATE, _LINES)
        self._unsaid = 0

    def connected(self) -> None:
        self._counts["connected"] += 1

    def refused(self, refusal: Refusal, request: Request | None) -> None:
        """Host and port are all that is ever written down of a request: paths and headers may hold secrets."""
        self._counts[refusal.reason] += 1
        if not self._lines.try_take():
            self._unsaid += 1
            return
        unsaid, self._unsaid = self._unsaid, 0
        to = f"{request.host}:{request.port}" if request is not None else ""
        log.info("egress refused", pod=self._pod, to=to, reason=refusal.reason, cause=refusal.message, unsaid=unsaid)
