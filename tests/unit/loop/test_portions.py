"""What follows from one event is spread over turns of the event loop, in order, and nothing is lost."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from sandpool.base.clock import LoopClock
from sandpool.loop.cache import Cache
from sandpool.loop.controller import Controller
from sandpool.loop.outcome import Done
from sandpool.loop.portions import PORTION, in_portions
from sandpool.model.core import ConfigMap
from sandpool.model.kinds import CONFIG_MAPS
from sandpool.model.metadata import Metadata, Uid
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory
from support.simulated.loop_cluster import START


async def test_a_portion_in_each_turn() -> None:
    done: list[int] = []
    turns = [0]

    def tick() -> None:
        turns.append(len(done))
        if len(done) < 3 * PORTION + 5:
            asyncio.get_running_loop().call_soon(tick)

    in_portions(range(3 * PORTION + 5), done.append)
    assert len(done) == PORTION
    tick()
    while len(done) < 3 * PORTION + 5:
        await asyncio.sleep(0)
    assert done == list(range(3 * PORTION + 5))
    assert max(after - before for before, after in pairwise(turns)) <= PORTION


def test_all_at_once_where_nobody_waits() -> None:
    done: list[int] = []
    in_portions(range(3 * PORTION), done.append)
    assert done == list(range(3 * PORTION))


async def test_what_is_added_later_is_not_part_of_it() -> None:
    items, done = dict.fromkeys(range(2 * PORTION)), list[int]()
    in_portions(items.keys(), done.append)
    items[-1] = None
    while len(done) < 2 * PORTION:
        await asyncio.sleep(0)
    assert -1 not in done


@pytest.mark.parametrize("number", [PORTION, 4 * PORTION])
async def test_an_object_that_concerns_thousands_wakes_all_of_them_in_order(number: int) -> None:
    """A tenant's patch of one template blocked the event loop for as long as it took to wake all its pools."""
    cache: Cache[ConfigMap] = Cache(CONFIG_MAPS)

    async def reconcile(key: str) -> Done:
        return Done()

    controller: Controller[str] = Controller("test", reconcile, LoopClock(START), Metrics(), ReconcileHistory())
    keys = [f"key-{each:05d}" for each in range(number)]
    controller.on(cache, lambda obj: keys, reduce=lambda obj: obj.metadata.resource_version)
    meta = Metadata(name="m", namespace="a", uid=Uid("u"), resource_version="1")
    cache.upsert(ConfigMap(metadata=meta))
    assert len(controller.queue) == PORTION
    while len(controller.queue) < number:
        await asyncio.sleep(0)
    taken = [controller.queue.take_nowait() for _ in range(number)]
    assert [item[0] for item in taken if item is not None] == keys
