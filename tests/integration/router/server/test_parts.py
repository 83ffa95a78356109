"""Two parts that are hard to catch from outside: connections that wait, and a stretch of work that is cut off."""

from __future__ import annotations

import asyncio
import socket

import pytest

from sandpool.router.cancel_scope import CancelScope
from sandpool.router.connection import Connection
from sandpool.router.options import RouterOptions
from sandpool.router.upstreams import Upstreams
from support.clocks.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_the_one_used_last_is_used_next(clock: ManualClock) -> None:
    kept = Upstreams(RouterOptions(), clock)
    pairs = [socket.socketpair() for _ in range(2)]
    lines = [Connection(ours) for ours, _ in pairs]
    for line in lines:
        kept.give("a", line)
    assert kept.take("b") is None
    assert kept.take("a") is lines[1]
    assert kept.take("a") is lines[0]
    assert kept.take("a") is None
    for line in lines:
        assert not line.closed
        line.close()
    for _, theirs in pairs:
        theirs.close()


@pytest.mark.parametrize("unasked", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
async def test_one_that_was_closed_or_spoken_on_is_not(clock: ManualClock, unasked: bytes) -> None:
    """Also when the loop has had no turn yet to notice."""
    kept = Upstreams(RouterOptions(), clock)
    ours, theirs = socket.socketpair()
    line = Connection(ours)
    kept.give("a", line)
    if unasked:
        theirs.send(unasked)
    else:
        theirs.close()
    assert kept.take("a") is None
    assert line.closed
    theirs.close()


async def test_one_that_is_closed_goes_at_once(clock: ManualClock) -> None:
    kept = Upstreams(RouterOptions(), clock)
    ours, theirs = socket.socketpair()
    line = Connection(ours)
    kept.give("a", line)
    theirs.close()
    async with asyncio.timeout(20):
        while not line.closed:
            await asyncio.sleep(0)
    assert kept.take("a") is None


async def test_only_so_many_and_only_so_long(clock: ManualClock) -> None:
    kept = Upstreams(RouterOptions(spares=2, all_spares=3, spare=30), clock)
    pairs = [socket.socketpair() for _ in range(6)]
    lines = [Connection(ours) for ours, _ in pairs]
    for pool, line in zip(("a", "a", "a", "b", "b", "c"), lines, strict=True):
        kept.give(pool, line)
    assert [line.closed for line in lines] == [False, False, True, False, True, True]
    clock.advance(29)
    assert kept.take("b") is lines[3]
    clock.advance(2)
    assert [line.closed for line in lines[:4]] == [True, True, True, False]
    kept.give("b", lines[3])
    kept.close()
    assert lines[3].closed
    for _, theirs in pairs:
        theirs.close()


class Enough(Exception):
    pass


async def test_a_scope_is_left_with_the_reason_of_its_last_limit(clock: ManualClock) -> None:
    async def limited() -> None:
        with CancelScope(clock) as scope:
            scope.limit(5, Enough("first"))
            scope.limit(50, Enough("later"))
            scope.limit(10, Enough("last"))
            await asyncio.Event().wait()

    async def work() -> str:
        with pytest.raises(Enough, match="last"):
            await limited()
        await asyncio.sleep(0)  # it is not cancelled any more
        return "went on"

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    clock.advance(9)
    await asyncio.sleep(0)
    assert not task.done()
    clock.advance(1)
    assert await task == "went on"


async def test_who_is_cancelled_as_well_stays_cancelled(clock: ManualClock) -> None:
    scope = CancelScope(clock)

    async def work() -> None:
        with scope:
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    scope.cut(Enough())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    scope.cut(Enough())  # too late: nobody is inside
