from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.api.local_objects import Bench, bench


@pytest.fixture
async def b() -> AsyncIterator[Bench]:
    async with bench() as made:
        yield made
