"""boxd is connected to as soon as a sandbox is somebody's, and nothing depends on it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from sandpool.kube.priority import UrgentWork
from sandpool.model.sandbox import Sandbox
from sandpool.router.ports import NoAnswer, Target
from sandpool.router.prewarm import (
    AT_ONCE,
    KEPT,
    LONGEST,
    MOST,
    NEAR,
    PACE,
    UNDER_WAY,
    Prewarmer,
    opened,
    prewarm_target,
    rest,
)
from support.clocks.manual_clock import ManualClock
from support.network.gate_parts import CLAIM, POOL, a_sandbox

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WAITING = {"type": "Ready", "status": "False", "reason": "PodNotReady", "message": ""}
MEMBER, CLAIMED = a_sandbox(owner=POOL), a_sandbox(owner=CLAIM, revision=2)
TARGET = Target("default", "box", CLAIMED.metadata.uid, "box", "10.0.0.7")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (MEMBER, CLAIMED, True),
        (a_sandbox(conditions=(WAITING,)), CLAIMED, True),  # started for its claim
        (CLAIMED, CLAIMED, False),
        (None, CLAIMED, False),  # what there was when this process began
        (CLAIMED, None, False),
        (a_sandbox(owner=POOL, conditions=(WAITING,)), MEMBER, False),
        (MEMBER, a_sandbox(conditions=(WAITING,)), False),
        (a_sandbox(owner=None, conditions=(WAITING,)), a_sandbox(owner=None), False),  # nobody's claim
    ],
)
def test_when_a_first_command_is_near(old: Sandbox | None, new: Sandbox | None, expected: bool) -> None:
    assert (opened(old, new, NOW) == TARGET) is expected


def test_what_is_foreseen_is_what_will_be() -> None:
    assert prewarm_target(MEMBER, NOW) == opened(MEMBER, CLAIMED, NOW)
    assert prewarm_target(CLAIMED, NOW) is None
    assert prewarm_target(a_sandbox(owner=POOL, conditions=(WAITING,)), NOW) is None


class Daemons:
    """Connections as a backend would make them; it says when."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.ends: list[socket.socket] = []
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None

    async def connect(self, target: Target) -> socket.socket:
        self.asked.append(target.name)
        await self.go.wait()
        if self.error is not None:
            raise self.error
        ours, its = socket.socketpair()
        ours.setblocking(False)
        self.ends.append(its)
        return ours


class Stage:
    def __init__(self) -> None:
        self.daemons, self.clock, self.urgent = Daemons(), ManualClock(), UrgentWork()
        self.prewarmer = Prewarmer(self.daemons.connect, self.clock, self.urgent)

    def hand_over(self, name: str = "box") -> Target:
        uid = f"u-{name}"
        self.prewarmer.changed(a_sandbox(name, uid=uid, owner=POOL), a_sandbox(name, uid=uid))
        return Target("default", name, a_sandbox(name, uid=uid).metadata.uid, name, "10.0.0.7")

    async def settled(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@asynccontextmanager
async def a_stage() -> AsyncIterator[Stage]:
    stage = Stage()
    running = asyncio.create_task(stage.prewarmer.run())
    try:
        yield stage
    finally:
        running.cancel()
        await asyncio.wait((running,))
        for end in stage.daemons.ends:
            end.close()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with a_stage() as found:
        yield found


async def test_the_first_request_finds_it_made(stage: Stage) -> None:
    target = stage.hand_over()
    await stage.settled()
    assert stage.daemons.asked == ["box"]
    found = await stage.prewarmer.take(target)
    assert found is not None
    with found:
        stage.daemons.ends[0].send(b"hello")
        assert found.recv(10) == b"hello"
    assert await stage.prewarmer.take(target) is None, "it is for one"


async def test_one_that_is_being_made_is_waited_for(stage: Stage) -> None:
    stage.daemons.go.clear()
    target = stage.hand_over()
    await stage.settled()
    taking = [asyncio.create_task(stage.prewarmer.take(target)) for _ in range(3)]
    await stage.settled()
    assert not any(one.done() for one in taking)
    taking[0].cancel()
    stage.daemons.go.set()
    await asyncio.wait(taking)
    got = [one.result() for one in taking[1:]]
    assert [one is not None for one in got] == [True, False], "whoever gave up takes nothing with it"
    for one in got:
        if one is not None:
            one.close()


async def test_only_so_many_at_once_and_a_request_does_not_wait_for_its_turn(stage: Stage) -> None:
    stage.daemons.go.clear()
    targets = [stage.hand_over(f"box-{number}") for number in range(AT_ONCE + 2)]
    await stage.settled()
    assert len(stage.daemons.asked) == AT_ONCE
    assert await stage.prewarmer.take(targets[-1]) is None
    stage.daemons.go.set()
    await stage.settled()
    assert len(stage.daemons.asked) == AT_ONCE, "claims keep a core"
    stage.clock.advance(PACE)
    await stage.settled()
    assert stage.daemons.asked == [target.name for target in targets[:-1]]


async def test_there_is_an_end_to_how_many_are_kept(stage: Stage) -> None:
    stage.daemons.go.clear()
    for number in range(MOST + 10):
        stage.hand_over(f"box-{number}")
    assert await stage.prewarmer.take(stage.hand_over("one-more")) is None
    assert stage.prewarmer.count == MOST


async def test_it_is_announced_and_then_happens_and_is_made_once(stage: Stage) -> None:
    stage.prewarmer.prewarm(MEMBER)
    stage.prewarmer.prewarm(None)
    await stage.settled()
    stage.prewarmer.changed(MEMBER, CLAIMED)
    await stage.settled()
    assert stage.daemons.asked == ["box"]
    found = await stage.prewarmer.take(TARGET)
    assert found is not None
    found.close()


@pytest.mark.parametrize("error", [NoAnswer("it has just gone"), OSError("no descriptor"), ValueError("a mistake")])
async def test_a_failure_is_left_to_whoever_asks(stage: Stage, error: Exception) -> None:
    stage.daemons.error = error
    assert await stage.prewarmer.take(stage.hand_over()) is None
    stage.daemons.error = None
    other = stage.hand_over("other")
    await stage.settled()
    found = await stage.prewarmer.take(other)
    assert found is not None, "the next one is made"
    found.close()


async def test_one_that_the_sandbox_closed_is_not_given_out(stage: Stage) -> None:
    target = stage.hand_over()
    await stage.settled()
    stage.daemons.ends[0].close()
    assert await stage.prewarmer.take(target) is None


async def test_one_that_nobody_wants_is_closed(stage: Stage) -> None:
    target = stage.hand_over()
    await stage.settled()
    stage.clock.advance(KEPT + 1)
    assert stage.daemons.ends[0].recv(1) == b""
    assert await stage.prewarmer.take(target) is None


async def test_background_work_rests_until_the_command_runs(stage: Stage) -> None:
    target = stage.hand_over()
    await stage.settled()
    assert not stage.urgent.idle
    found = await stage.prewarmer.take(target)
    assert found is not None
    found.close()
    assert not stage.urgent.idle, "what it says is still to be passed on"
    stage.clock.advance(UNDER_WAY)
    assert stage.urgent.idle


async def test_background_work_does_not_wait_for_a_command_that_never_comes(stage: Stage) -> None:
    stage.hand_over()
    await stage.settled()
    stage.clock.advance(NEAR)
    assert stage.urgent.idle
    stage.clock.advance(KEPT)
    assert stage.urgent.idle, "and ends once"


async def test_many_commands_at_once_are_given_more_time(stage: Stage) -> None:
    targets = [stage.hand_over(f"box-{number}") for number in range(20)]
    stage.clock.advance(NEAR + 0.001)
    assert not stage.urgent.idle
    for target in targets:
        found = await stage.prewarmer.take(target)
        if found is not None:
            found.close()
    stage.clock.advance(NEAR)
    assert not stage.urgent.idle, "the machine is still busy with what they started"
    stage.clock.advance(rest(UNDER_WAY, 19))
    assert stage.urgent.idle


async def test_background_work_rests_again_for_a_command_that_comes_late(stage: Stage) -> None:
    target = stage.hand_over()
    await stage.settled()
    stage.clock.advance(NEAR)
    found = await stage.prewarmer.take(target)
    assert found is not None
    found.close()
    assert not stage.urgent.idle
    stage.clock.advance(UNDER_WAY)
    assert stage.urgent.idle


def test_rest_has_an_end() -> None:
    assert rest(NEAR, 0) == NEAR
    assert NEAR < rest(NEAR, 10) < rest(NEAR, 10_000) == LONGEST


async def test_what_is_left_at_the_end_is_closed() -> None:
    stage = Stage()
    running = asyncio.create_task(stage.prewarmer.run())
    stage.hand_over()
    await stage.settled()
    running.cancel()
    await asyncio.wait((running,))
    (end,) = stage.daemons.ends
    with end:
        assert end.recv(1) == b""
