"""Which run of boxd it is. Another one means that all that ran in the sandbox has ended: its container or its pod was started again.

boxd says it with every answer. A client that sends it back is refused by any other run, before anything is done; one that sends
nothing is served by whichever there is. It begins with when boxd started, by the sandbox's clock.
"""

from __future__ import annotations

import math
import re
from typing import Final

_SENDABLE: Final = re.compile(r"[0-9A-Za-z._-]{1,100}")
_TIME: Final = re.compile(r"([0-9]{1,12}\.[0-9]{3})-")

UNKNOWN: Final = math.inf


def incarnation(now: float, random: bytes) -> str:
    """`now` in seconds since 1970."""
    return f"{now:.3f}-{random.hex()}"


def sendable(text: str) -> bool:
    """Whether it can go into a header: it is a sandbox that says it."""
    return _SENDABLE.fullmatch(text) is not None


def started(text: str) -> float:
    """When that run began, in seconds since 1970; UNKNOWN if it does not say."""
    found = _TIME.match(text)
    return float(found[1]) if found is not None else UNKNOWN
