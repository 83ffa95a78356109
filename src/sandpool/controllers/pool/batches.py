"""Many writes at once: a few side by side, then more, and no more after one failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

Job = Callable[[], Coroutine[Any, Any, bool]]
"""Answers whether it did what it should. Raises only for bugs."""


def ramp(count: int, first: int, most: int) -> Iterator[int]:
    """Sizes of batches that make up `count`: they double from `first` to `most`."""
    size = max(1, min(first, most))
    while count > 0:
        yield min(size, count)
        count -= size
        size = min(2 * size, max(1, most))


async def run(jobs: Sequence[Job], first: int, most: int) -> bool:
    """Batch by batch; a batch with a failure is the last. Whether all went well."""
    start = 0
    for size in ramp(len(jobs), first, most):
        batch = jobs[start : start + size]
        start += size
        if len(batch) == 1:
            done = [await batch[0]()]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(job()) for job in batch]
            done = [task.result() for task in tasks]
        if not all(done):
            return False
    return True
