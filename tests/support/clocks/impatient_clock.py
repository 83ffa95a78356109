"""The machine's clock, but nobody waits: sleeps are written down and over at once."""

from __future__ import annotations

from sandpool.base.clock import SystemClock


class ImpatientClock(SystemClock):
    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
