"""A watch that has much to say lets others have their turn, also when its client reads as fast as it can."""

from __future__ import annotations

import asyncio
from typing import Any

from sandpool.controlplane.apiserver.fairness import ResponseBudget
from sandpool.controlplane.apiserver.handlers.watch import Watches, WatchResponse
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.model import kinds
from sandpool.telemetry.metrics import Metrics
from support.api.local_objects import bench, config_map


async def test_turns_between_chunks() -> None:
    async with bench() as b:
        for number in range(20):
            body: dict[str, Any] = {**config_map(f"c{number}"), "data": {"a": "x" * 300_000}}
            await b.create(kinds.CONFIG_MAPS, body)
        turns = 0
        seen: list[int] = []  # of each chunk: in which turn of the other task it was sent

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def send(chunk: bytes) -> None:  # never waits
            seen.append(turns)

        watches = Watches(b.objects, Limits(), Metrics(), ResponseBudget(Limits()), lambda: b.now, lambda: 0.5)
        watch = b.objects.watch(kinds.CONFIG_MAPS, "default")
        reply = WatchResponse(watches, watch, None, 60.0, None, "configmaps", "a")
        tasks = [asyncio.create_task(other()), asyncio.create_task(reply.pump(watch, send))]
        while len(seen) < 20:
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        watch.close()
        assert len(set(seen)) == len(seen) == 20
