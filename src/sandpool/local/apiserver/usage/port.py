"""Who knows what pods use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sandpool.model.metadata import Uid


@dataclass(frozen=True, slots=True)
class Used:
    """By one pod, over the `window` of seconds that ended `at` that moment."""

    cores: float  # processor seconds each second
    memory: int  # bytes at its end
    at: datetime
    window: float


class Usage(Protocol):
    async def used(self) -> Mapping[Uid, Used]:
        """Of every pod that runs here."""
        ...
