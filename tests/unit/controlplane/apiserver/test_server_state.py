"""Requests that come in one moment: some at once, the others in the next turns of the loop, all of them, in order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

import pytest

from sandpool.controlplane.apiserver.connection import ServerState
from sandpool.controlplane.apiserver.exchange import Exchange
from sandpool.controlplane.apiserver.fairness import ConnectionOwners, ResponseBudget
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.kube.priority import REQUESTS_PER_TURN


@dataclass
class Request:
    number: int
    gone: bool = False
    owner: str = "a"


class Desk:
    """Counts turns of the loop, and who was begun in which."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        limits = Limits()
        self.state = ServerState(
            self.serve, limits, ConnectionOwners(limits), ResponseBudget(limits), lambda: None, self.loop
        )
        self.begun: list[tuple[int, int]] = []  # turn and request
        self.served: list[int] = []
        self.turn = 0
        self.open: asyncio.Event | None = None  # what every request waits for

    async def serve(self, exchange: Exchange) -> None:
        number = cast(Request, exchange).number
        self.begun.append((self.turn, number))
        if self.open is not None:
            await self.open.wait()
        self.served.append(number)

    def come(self, *numbers: int) -> list[Request]:
        requests = [Request(number) for number in numbers]
        for request in requests:
            self.state.start(cast(Exchange, request))
        return requests

    async def turns(self, times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)
            self.turn += 1

    def by_turn(self) -> list[int]:
        turns = [turn for turn, _ in self.begun]
        return [turns.count(turn) for turn in sorted(set(turns))]


async def test_forty_in_one_moment() -> None:
    desk = Desk()
    desk.come(*range(40))
    await desk.turns(10)
    assert REQUESTS_PER_TURN == 16
    assert desk.by_turn() == [16, 16, 8]
    assert [number for _, number in desk.begun] == list(range(40)) == desk.served
    assert desk.state.tasks == set()


async def test_few_are_begun_at_once() -> None:
    desk = Desk()
    for number in range(5):
        desk.come(number)
        await desk.turns(1)
    assert [turn for turn, _ in desk.begun] == [0, 1, 2, 3, 4]


async def test_who_comes_later_does_not_pass_those_who_wait() -> None:
    desk = Desk()
    desk.come(*range(40))
    await desk.turns(1)
    desk.come(40, 41)
    await desk.turns(10)
    assert [number for _, number in desk.begun] == list(range(42))
    assert max(desk.by_turn()) <= REQUESTS_PER_TURN


async def test_requests_that_take_long_keep_nobody_from_being_begun() -> None:
    desk = Desk()
    desk.open = asyncio.Event()
    desk.come(*range(100))
    await desk.turns(20)
    assert len(desk.begun) == 100
    assert desk.served == []
    desk.open.set()
    await desk.turns(3)
    assert sorted(desk.served) == list(range(100))


@pytest.mark.parametrize("stopping", [False, True])
async def test_nothing_is_begun_for_who_left_while_he_waited(stopping: bool) -> None:
    desk = Desk()
    requests = desk.come(*range(40))
    for request in requests[20:35]:
        request.gone = True
    if stopping:
        desk.state.begin_all()
    await desk.turns(10)
    assert desk.served == [*range(20), *range(35, 40)]
    assert stopping or desk.by_turn() == [16, 9]


async def test_a_server_that_stops_begins_them_all_to_wait_for_them() -> None:
    desk = Desk()
    desk.come(*range(40))
    desk.state.begin_all()
    assert len(desk.state.tasks) == 40
    await desk.turns(5)
    assert desk.served == list(range(40)), "each once"


async def test_nothing_is_left_turning_when_all_are_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.come(*range(20))
    await desk.turns(10)
    asked: list[Any] = []
    monkeypatch.setattr(desk.state, "turn", lambda: asked.append(None))
    await desk.turns(10)
    assert asked == []
    desk.state.loop.call_soon(desk.state.turn)
    await desk.turns(1)
    assert asked == [None], "it would have been seen"
