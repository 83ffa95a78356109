"""How many Python functions some work calls: the same on every machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(work: Callable[[], object]) -> int:
    made = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal made
        made += event == "call"

    gc.disable()  # what it finalises is not ours
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return made
