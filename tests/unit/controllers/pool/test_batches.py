"""Batches: how many writes at once, and when no more are begun."""

from __future__ import annotations

import pytest

from sandpool.controllers.pool.creation import Job, ramp, run


@pytest.mark.parametrize(
    ("count", "first", "most", "sizes"),
    [
        (14, 1, 100, [1, 2, 4, 7]),
        (0, 1, 100, []),
        (14, 4, 4, [4, 4, 4, 2]),
        (300, 32, 32, [32] * 9 + [12]),
        (9, 1, 4, [1, 2, 4, 2]),
        (3, 0, 0, [1, 1, 1]),
    ],
)
def test_ramp(count: int, first: int, most: int, sizes: list[int]) -> None:
    assert list(ramp(count, first, most)) == sizes


async def test_a_failure_ends_it_after_its_batch() -> None:
    called: list[int] = []

    def job(number: int) -> Job:
        async def work() -> bool:
            called.append(number)
            return number != 5

        return work

    assert not await run([job(number) for number in range(14)], 1, 100)
    assert called == list(range(7))


async def test_all_well() -> None:
    async def work() -> bool:
        return True

    assert await run([work] * 9, 2, 4)
    assert await run([], 1, 1)
