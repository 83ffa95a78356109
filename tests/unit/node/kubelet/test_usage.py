"""What pods use, measured when asked for: rates over known windows, shared answers, nothing kept of what is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime

import pytest

from sandpool.base.clock import LoopClock
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import PodStatus, Stats, UnknownPod
from sandpool.node.kubelet.usage import UsageSampler

pytestmark = pytest.mark.looptime
START = datetime(2026, 1, 1, tzinfo=UTC)
A, B = Uid("a"), Uid("b")


class Busy:
    """Pods that use as many cores as it says, since the loop began."""

    def __init__(self, clock: LoopClock, **cores: float) -> None:
        self.clock = clock
        self.cores = {Uid(name): number for name, number in cores.items()}
        self.begun = {uid: clock.monotonic() for uid in self.cores}
        self.asked = 0
        self.ending: set[Uid] = set()
        self.stuck: set[Uid] = set()
        self.over: set[Uid] = set()

    def list_pods(self) -> Collection[PodStatus]:
        return [PodStatus(uid, Key("default", uid), reclaimed=uid in self.over) for uid in self.cores]

    async def stats(self, uid: Uid) -> Stats:
        self.asked += 1
        if uid in self.stuck:
            await asyncio.Event().wait()
        if uid in self.ending:
            raise UnknownPod(uid)
        return Stats((self.clock.monotonic() - self.begun[uid]) * self.cores[uid], 1 << 20, 1)


async def test_the_first_answer_takes_a_short_window_and_the_next_none() -> None:
    clock = LoopClock(START)
    busy = Busy(clock, a=1.5, b=0.0)
    sampler = UsageSampler(busy, clock)
    begun = clock.monotonic()
    used = await sampler.used()
    assert clock.monotonic() - begun == pytest.approx(0.5)
    assert {uid: one.cores for uid, one in used.items()} == {A: pytest.approx(1.5), B: 0.0}
    assert used[A].memory == 1 << 20
    assert used[A].window == pytest.approx(0.5)
    assert used[A].at == clock.now()
    await asyncio.sleep(10)
    begun, busy.asked = clock.monotonic(), 0
    used = await sampler.used()
    assert clock.monotonic() == begun
    assert busy.asked == 2
    assert used[A].window == pytest.approx(10)
    assert used[A].cores == pytest.approx(1.5)


async def test_who_asks_within_a_moment_shares_an_answer() -> None:
    clock = LoopClock(START)
    busy = Busy(clock, a=1.0)
    sampler = UsageSampler(busy, clock)
    answers = await asyncio.gather(*(sampler.used() for _ in range(50)))
    assert busy.asked == 2
    assert all(answer == answers[0] for answer in answers)
    await asyncio.sleep(1)
    assert await sampler.used() == answers[0]
    assert busy.asked == 2


async def test_a_look_from_long_ago_says_nothing_about_now() -> None:
    clock = LoopClock(START)
    sampler = UsageSampler(Busy(clock, a=1.0), clock)
    await sampler.used()
    await asyncio.sleep(3600)
    assert (await sampler.used())[A].window == pytest.approx(0.5)


async def test_a_pod_that_came_is_measured_without_asking_the_others_again() -> None:
    clock = LoopClock(START)
    busy = Busy(clock, a=1.0)
    sampler = UsageSampler(busy, clock)
    await sampler.used()
    busy.cores[B], busy.begun[B], busy.asked = 2.0, clock.monotonic(), 0
    used = await sampler.used()
    assert used[B].cores == pytest.approx(2.0)
    assert busy.asked == 2


async def test_what_is_gone_is_forgotten_and_what_goes_meanwhile_is_left_out() -> None:
    clock = LoopClock(START)
    busy = Busy(clock, a=1.0, b=1.0)
    sampler = UsageSampler(busy, clock)
    busy.ending = {B}
    assert set(await sampler.used()) == {A}
    busy.ending = set()
    await asyncio.sleep(5)
    assert set(await sampler.used()) == {A, B}
    del busy.cores[A]
    assert set(await sampler.used()) == {B}
    assert not {A} & (sampler.looks.keys() | sampler.measured.keys())


async def test_a_pod_that_does_not_answer_holds_up_no_other() -> None:
    clock = LoopClock(START)
    busy = Busy(clock, a=1.0, b=1.0)
    busy.stuck = {B}
    assert set(await UsageSampler(busy, clock).used()) == {A}
    assert clock.monotonic() < 10


async def test_a_restarted_container_never_counts_backwards() -> None:
    clock = LoopClock(START)
    busy = Busy(clock, a=1.0)
    sampler = UsageSampler(busy, clock)
    await sampler.used()
    await asyncio.sleep(10)
    busy.begun[A] = clock.monotonic()
    assert (await sampler.used())[A].cores == 0.0


async def test_an_asker_who_leaves_holds_nobody_up() -> None:
    clock = LoopClock(START)
    sampler = UsageSampler(Busy(clock, a=1.0), clock)
    first = asyncio.create_task(sampler.used())
    await asyncio.sleep(0.1)
    first.cancel()
    used = await sampler.used()
    assert used[A].cores == pytest.approx(1.0)
    assert used[A].window >= 0.45


async def test_a_pod_that_is_over_uses_nothing_and_is_not_asked() -> None:
    clock = LoopClock(START)
    busy = Busy(clock, a=1.0, b=1.0)
    sampler = UsageSampler(busy, clock)
    assert (await sampler.used()).keys() == {A, B}
    busy.over, busy.asked = {B}, 0
    await asyncio.sleep(10)
    assert (await sampler.used()).keys() == {A}
    assert busy.asked == 1
