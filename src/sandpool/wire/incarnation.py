"""Identifies one run of boxd. A new one means that the container or the pod was restarted, so all earlier processes have ended.

boxd sends it with every response. If a client sends it back, any other run of boxd refuses the request before it does anything. A request
without one is served by the current run. It begins with the time at which boxd started, by the sandbox's clock.
"""

from __future__ import annotations

import math
import re
from typing import Final

_SENDABLE: Final = re.compile(r"[0-9A-Za-z._-]{1,100}")
_TIME: Final = re.compile(r"([0-9]{1,12}\.[0-9]{3})-")

UNKNOWN: Final = math.inf


def incarnation(now: float, random: bytes) -> str:
    """A new identifier. `now` is in seconds since 1970."""
    return f"{now:.3f}-{random.hex()}"


def sendable(text: str) -> bool:
    """Whether it is safe to send in a header. It comes from a sandbox, which is not trusted."""
    return _SENDABLE.fullmatch(text) is not None


def started(text: str) -> float:
    """When that run began, in seconds since 1970; UNKNOWN if the text does not contain it."""
    found = _TIME.match(text)
    return float(found[1]) if found is not None else UNKNOWN
