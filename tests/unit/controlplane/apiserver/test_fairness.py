"""Seats that tenants share: who waits, who is refused, who is next."""

from __future__ import annotations

import asyncio

import pytest

from sandpool.controlplane.apiserver.fairness import Full, Seats


class Room:
    """Seats, and whose work was to be cut short."""

    def __init__(self, total: int) -> None:
        self.cut: list[str] = []
        self.seats = Seats(total, self.cut.append)
        self.got: list[str] = []

    def fill(self, tenant: str, number: int) -> None:
        for _ in range(number):
            assert self.seats.enter(tenant)

    def waiter(self, tenant: str) -> asyncio.Task[None]:
        async def wait() -> None:
            if not self.seats.enter(tenant):
                await self.seats.wait(tenant)
            self.got.append(tenant)

        return asyncio.create_task(wait())


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_whoever_has_its_share_is_refused_at_once() -> None:
    room = Room(4)
    room.fill("a", 4)
    with pytest.raises(Full):
        await room.waiter("a")
    assert room.cut == []


async def test_whoever_is_below_its_share_waits_and_gets_the_next_seat() -> None:
    room = Room(4)
    room.fill("a", 4)
    waiting = room.waiter("b")
    await turns()
    assert (waiting.done(), room.cut) == (False, ["a"])
    room.seats.leave("a")
    await waiting
    assert room.seats.shares.held == {"a": 3, "b": 1}


async def test_those_who_wait_are_served_in_turn() -> None:
    room = Room(8)
    room.fill("a", 8)
    tasks = [room.waiter(tenant) for tenant in "bbcc"]
    await turns()
    for _ in tasks:
        room.seats.leave("a")
        await turns()
    assert room.got == ["b", "c", "b", "c"]
    await asyncio.gather(*tasks)


async def test_no_more_wait_than_the_share() -> None:
    room = Room(4)
    room.fill("a", 4)
    waiting = [room.waiter("b") for _ in range(2)]
    await turns()
    with pytest.raises(Full):
        await room.waiter("b")
    for _ in waiting:
        room.seats.leave("a")
    await asyncio.gather(*waiting)


async def test_who_stops_waiting_leaves_nothing_behind() -> None:
    room = Room(1)
    room.fill("a", 1)
    first = room.waiter("b")
    await turns()
    first.cancel()
    await asyncio.wait([first])
    room.seats.leave("a")
    assert (room.seats.shares.used, room.seats.enter("c")) == (1 - 1, True)


async def test_who_is_given_a_seat_while_it_stops_waiting_gives_it_on() -> None:
    room = Room(2)
    room.fill("a", 2)
    first, second = room.waiter("b"), room.waiter("c")
    await turns()
    room.seats.leave("a")
    first.cancel()
    await asyncio.wait([first])
    await second
    assert room.seats.shares.held == {"a": 1, "c": 1}


async def test_the_operator_never_waits() -> None:
    room = Room(1)
    room.fill("a", 1)
    room.fill("", 1)
    with pytest.raises(Full):
        await room.waiter("")
    room.seats.leave("")
    assert room.seats.enter("")
