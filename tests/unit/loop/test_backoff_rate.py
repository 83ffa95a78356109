from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from sandpool.loop.backoff import Backoff
from sandpool.loop.clock import LoopClock
from sandpool.loop.rate import TokenBucket
from support.manual_clock import ManualClock


def test_delays_double_up_to_the_cap_and_start_over_when_forgotten() -> None:
    backoff: Backoff[str] = Backoff(0.005, 0.03)
    assert [backoff.next("a") for _ in range(5)] == [0.005, 0.01, 0.02, 0.03, 0.03]
    assert backoff.next("b") == 0.005
    assert backoff.failures("a") == 5
    backoff.forget("a")
    assert backoff.next("a") == 0.005


def test_many_failures_stay_at_the_cap() -> None:
    backoff: Backoff[str] = Backoff()
    assert [backoff.next("a") for _ in range(5000)][-1] == 1000.0


@pytest.mark.parametrize(("random", "delay"), [(0.0, 0.5), (0.5, 1.0), (0.999, 1.499)])
def test_jitter_spreads_around_the_delay(random: float, delay: float) -> None:
    backoff: Backoff[str] = Backoff(1.0, 10.0, jitter=0.5, random=lambda: random)
    assert backoff.next("a") == pytest.approx(delay)


def test_a_bucket_gives_its_burst_then_its_rate() -> None:
    clock = ManualClock()
    bucket = TokenBucket(clock, rate=2, burst=3)
    assert [bucket.try_take() for _ in range(4)] == [True, True, True, False]
    clock.advance(0.5)
    assert [bucket.try_take() for _ in range(2)] == [True, False]
    clock.advance(60)
    assert bucket.full
    assert [bucket.try_take() for _ in range(4)] == [True, True, True, False]


@pytest.mark.looptime
async def test_waiting_takers_are_served_in_order_at_the_rate() -> None:
    bucket = TokenBucket(LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), rate=2, burst=1)
    served: list[tuple[int, float]] = []

    async def taker(number: int) -> None:
        await bucket.take()
        served.append((number, asyncio.get_running_loop().time()))

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(taker(number))
    assert served == [(0, 0.0), (1, 0.5), (2, 1.0), (3, 1.5)]


@pytest.mark.looptime
async def test_a_cancelled_taker_gives_its_token_back() -> None:
    bucket = TokenBucket(LoopClock(datetime(2026, 1, 1, tzinfo=UTC)), rate=1, burst=1)
    await bucket.take()
    waiting = asyncio.create_task(bucket.take())
    await asyncio.sleep(0.25)
    waiting.cancel()
    await asyncio.sleep(0.75)
    assert bucket.try_take()


def test_a_bucket_that_never_fills_is_refused() -> None:
    with pytest.raises(ValueError, match="rate above 0"):
        TokenBucket(ManualClock(), rate=0, burst=1)
