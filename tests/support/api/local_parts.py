"""Runs the parts that a cluster itself runs (collection, namespaces, expiry) for the length of a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from sandpool.controlplane.store.store import Store

_TURNS = 5_000


class Part(Protocol):
    async def run(self) -> None: ...


@asynccontextmanager
async def running(*parts: Part) -> AsyncIterator[None]:
    """A part that fails fails the block; at its end all are cancelled and must end."""
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield
        for task in tasks:
            assert not task.done(), task
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(outcome, asyncio.CancelledError):
                assert isinstance(outcome, BaseException)
                raise outcome


async def until(condition: Callable[[], bool]) -> None:
    """Lets others run until the condition holds. The loop turns instead of sleeping: nothing here waits for time."""
    for _ in range(_TURNS):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError(f"never happened: {condition}")


async def quiet(store: Store, turns: int = 60) -> None:
    """Lets others run until nothing has been written for so many turns of the loop."""
    revision, still = store.revision, 0
    for _ in range(100_000):
        await asyncio.sleep(0)
        still = still + 1 if store.revision == revision else 0
        revision = store.revision
        if still > turns:
            return
    raise AssertionError("the store never came to rest")
