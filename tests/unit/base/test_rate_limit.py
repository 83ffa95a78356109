from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.base.rate_limit import TokenBucket


def test_a_burst_then_one_per_interval() -> None:
    bucket = TokenBucket(qps=10, burst=3)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.wait(0.0) == pytest.approx(0.1)
    assert not bucket.take(0.05)
    assert bucket.take(0.1)
    assert not bucket.take(0.1)


def test_no_limit() -> None:
    bucket = TokenBucket(qps=0, burst=1)
    assert all(bucket.take(0.0) for _ in range(1000))
    assert bucket.wait(0.0) == 0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(qps=1, burst=1)
    assert bucket.take(100.0)
    assert not bucket.take(50.0)
    assert not bucket.take(100.5)
    assert bucket.take(101.0)


@given(
    qps=st.floats(0.1, 1000),
    burst=st.integers(1, 100),
    steps=st.lists(st.floats(0, 10), min_size=1, max_size=60),
)
def test_never_more_than_promised_and_waiting_is_enough(qps: float, burst: int, steps: list[float]) -> None:
    bucket, now, taken = TokenBucket(qps, burst), 0.0, 0
    for step in steps:
        now += step
        while bucket.take(now):
            taken += 1
        assert taken <= burst + now * qps + 1e-3
        wait = bucket.wait(now)
        assert wait > 0
        now += wait
        assert bucket.take(now), "after the wait there is one"
        taken += 1
