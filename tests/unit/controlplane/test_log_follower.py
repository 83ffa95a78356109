"""The loop below the cluster's own controllers."""

from __future__ import annotations

import asyncio

import pytest

from sandpool.controlplane.log_follower import follow
from sandpool.controlplane.store.port import Watcher
from sandpool.controlplane.store.record import Change, Compacted
from sandpool.model.metadata import NO_REVISION, Revision


class Scripted:
    """A watcher of nothing that can be closed."""

    revision = NO_REVISION

    def __init__(self) -> None:
        self.closed = False

    async def changes(self) -> list[Change]:
        await asyncio.Event().wait()
        raise AssertionError

    def close(self) -> None:
        self.closed = True


class Part:
    def __init__(self, failures: list[Exception]) -> None:
        self.failures = failures
        self.watchers: list[Scripted] = []
        self.fail = asyncio.Event()

    def load(self) -> Watcher:
        self.watchers.append(Scripted())
        return self.watchers[-1]

    async def observe(self, watcher: Watcher) -> None:
        await self.fail.wait()
        if self.failures:
            raise self.failures.pop(0)
        await asyncio.Event().wait()

    async def work(self, tasks: asyncio.TaskGroup) -> None:
        await asyncio.Event().wait()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def compacted() -> Compacted:
    return Compacted(Revision(1), Revision(5))


async def test_falling_behind_loads_again_and_closes_what_it_had() -> None:
    part = Part([compacted(), compacted()])
    task = asyncio.create_task(follow(part.load, part.observe, part.work))
    part.fail.set()
    await turns()
    assert [watcher.closed for watcher in part.watchers] == [True, True, False]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(watcher.closed for watcher in part.watchers)


async def test_cancelled_while_falling_behind() -> None:
    """Both at once: neither hides the other."""
    part = Part([compacted()])
    task = asyncio.create_task(follow(part.load, part.observe, part.work))
    await turns()
    part.fail.set()
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_other_failures_are_not_hidden() -> None:
    part = Part([ValueError("a bug")])
    part.fail.set()
    with pytest.raises(ExceptionGroup) as caught:
        await follow(part.load, part.observe, part.work)
    assert caught.group_contains(ValueError, match="a bug")
    assert part.watchers[0].closed
