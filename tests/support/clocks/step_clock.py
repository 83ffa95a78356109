"""A clock whose sleep takes no time: it notes how long it should have been and moves on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from sandpool.base.clock import Timer

START = datetime(2026, 1, 1, tzinfo=UTC)


class StepClock:
    def __init__(self) -> None:
        self.elapsed = 0.0
        self.sleeps: list[float] = []
        self.during: Callable[[], Awaitable[object]] | None = None  # what happens while it sleeps

    def now(self) -> datetime:
        return START + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return self.elapsed

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.elapsed += seconds
        await (self.during() if self.during is not None else asyncio.sleep(0))

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        raise NotImplementedError("what is tested with this clock sleeps and sets no timers")
