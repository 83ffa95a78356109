from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from sandpool.kube.config import Cluster, Config, User
from sandpool.kube.http import HttpApi, connect
from support.clocks.step_clock import StepClock

Connect = Callable[..., HttpApi]


@pytest.fixture(autouse=True)
def no_waiter_is_left() -> Iterator[None]:
    """asyncio waits for each child in a thread, which may end a moment after the child's end was told."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("asyncio-waitpid"):
            thread.join(10)


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
async def to(clock: StepClock) -> AsyncIterator[Connect]:
    """Clients of a server, closed at the end of the test."""
    async with AsyncExitStack() as stack:

        def make(cluster: str | Cluster, user: User = User(), **options: Any) -> HttpApi:
            cluster = Cluster(cluster) if isinstance(cluster, str) else cluster
            env = options.pop("env", {})
            api = connect(Config(cluster, user), clock=clock, draw=lambda: 0.5, env=env, **options)
            stack.push_async_callback(api.close)
            return api

        yield make
