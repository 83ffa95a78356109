"""Parts beside a body: the order of their start and end, and what a failure of one does to the others."""

from __future__ import annotations

import asyncio

import pytest

from sandpool.base.errors import SandpoolError
from sandpool.loop.lifetimes import beside, first_error, reached, ungrouped


class Broken(Exception):
    pass


async def a_part(name: str, said: list[str]) -> None:
    said.append(f"{name} begins")
    try:
        await asyncio.Event().wait()
    finally:
        said.append(f"{name} ends")


async def test_parts_end_in_the_reverse_order_of_their_start() -> None:
    said: list[str] = []
    async with beside(outer=a_part("outer", said)):
        await asyncio.sleep(0)
        async with beside(inner=a_part("inner", said)):
            await asyncio.sleep(0)
            said.append("body")
    assert said == ["outer begins", "inner begins", "body", "inner ends", "outer ends"]


async def test_a_part_that_fails_ends_the_body_and_what_is_inside() -> None:
    said: list[str] = []
    broken = asyncio.Event()

    async def fails() -> None:
        await broken.wait()
        raise Broken

    async def run() -> None:
        async with beside(outer=fails()), beside(inner=a_part("inner", said)):
            await asyncio.sleep(0)
            broken.set()
            await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup) as caught:
        await run()
    assert isinstance(first_error(caught.value), Broken)
    assert said == ["inner begins", "inner ends"]


async def test_a_part_that_ends_by_itself_is_a_failure_that_names_it() -> None:
    async def short() -> None:
        return

    with pytest.raises(BaseExceptionGroup) as caught:
        async with beside(collector=short()):
            await asyncio.Event().wait()
    error = first_error(caught.value)
    assert isinstance(error, SandpoolError)
    assert "collector ended by itself" in str(error)


def test_what_a_user_can_be_told_leaves_as_itself() -> None:
    error = OSError("taken")
    with pytest.raises(OSError, match="taken") as caught, ungrouped():
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [error])])
    assert caught.value is error
    for other in ([ValueError()], [ValueError(), error]):
        with pytest.raises(ExceptionGroup), ungrouped():
            raise ExceptionGroup("a mistake of ours", other)


@pytest.mark.parametrize(("ready", "stopped"), [(True, False), (False, True), (True, True)])
async def test_waiting_does_not_outlast_the_stop(ready: bool, stopped: bool) -> None:
    event, stop = asyncio.Event(), asyncio.Event()
    waiting = asyncio.create_task(reached(event, stop))
    await asyncio.sleep(0)
    assert not waiting.done()
    if ready:
        event.set()
    if stopped:
        stop.set()
    assert await waiting is (ready and not stopped)


async def test_a_body_that_ends_at_once_leaves_no_part_that_never_began() -> None:
    """Python warns of such a part, and here a warning is an error."""
    said: list[str] = []
    async with beside(part=a_part("part", said)):
        pass
    assert said == []
