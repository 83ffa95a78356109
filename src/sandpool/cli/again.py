"""A detached cluster that had to end for lack of memory starts again by itself, in the same process: nobody else would do it. One in
the foreground ends with a code of its own, for whoever looks after it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

VARIABLE = "SANDPOOL_STARTED_AGAIN"
"""There in a detached cluster only: how often in a row it has started again."""
MOST = 5
RESPITE = 600.0  # seconds after which it counts from the beginning
FIRST_PAUSE = 1.0  # seconds, doubling


def next_start(environment: Mapping[str, str], lived: float) -> tuple[int, float] | None:
    """Which start the next one is, and how long to wait before it; None if there is to be none."""
    said = environment.get(VARIABLE, "")
    if not said.isdigit():
        return None
    count = 0 if lived >= RESPITE else int(said)
    return (count + 1, FIRST_PAUSE * 2.0**count) if count < MOST else None


def start_again(why: str, lived: float) -> None:
    """Does not return if it does; `lived` is how many seconds the last one lasted."""
    following = next_start(os.environ, lived)
    if following is None:
        return
    count, pause = following
    print(f"sandpool: {why}. It starts again in {pause:g} s ({count} of {MOST})", file=sys.stderr, flush=True)
    time.sleep(pause)
    os.environ[VARIABLE] = str(count)
    os.execv(sys.executable, [sys.executable, "-m", "sandpool", *sys.argv[1:]])  # noqa: S606 - ourselves
