"""Every test of this folder runs on each backend that works on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest

from conformance.backends.subject import Subject
from sandpool.local.backends.base import Backend
from sandpool.local.backends.hollow import HollowBackend
from sandpool.loop.clock import LoopClock

START = datetime(2026, 1, 1, tzinfo=UTC)
BACKENDS: dict[str, Callable[[LoopClock], Backend]] = {"hollow": HollowBackend}


@pytest.fixture(params=sorted(BACKENDS))
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    clock = LoopClock(START)
    subject = Subject(lambda: BACKENDS[request.param](clock))
    await subject.open()
    yield subject
    await subject.backend.close()
