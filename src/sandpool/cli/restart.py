"""Restarts a detached cluster that ran out of memory, in the same process, a few times in a row.

A cluster in the foreground exits with its own code instead, for its supervisor.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

VARIABLE = "SANDPOOL_STARTED_AGAIN"
"""Set in a detached cluster only: how often in a row it was restarted."""
MOST = 5
RESPITE = 600.0  # seconds of uptime after which the count begins at 0 again
FIRST_PAUSE = 1.0  # seconds, doubling


def next_start(environment: Mapping[str, str], lived: float) -> tuple[int, float] | None:
    """The number of the next restart, and how long to wait before it; None: no restart."""
    said = environment.get(VARIABLE, "")
    if not said.isdigit():
        return None
    count = 0 if lived >= RESPITE else int(said)
    return (count + 1, FIRST_PAUSE * 2.0**count) if count < MOST else None


def start_again(why: str, lived: float) -> None:
    """Replaces this process if it restarts, else returns; `lived` is the uptime in seconds."""
    following = next_start(os.environ, lived)
    if following is None:
        return
    count, pause = following
    print(f"sandpool: {why}. It restarts in {pause:g} s ({count} of {MOST})", file=sys.stderr, flush=True)
    time.sleep(pause)
    os.environ[VARIABLE] = str(count)
    os.execv(sys.executable, [sys.executable, "-m", "sandpool", *sys.argv[1:]])  # noqa: S606 - ourselves
