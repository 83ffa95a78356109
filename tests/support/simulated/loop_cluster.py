"""A cluster for tests of loop/: the real in-process Api on a store in memory, which follows virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any

from sandpool.base.clock import LoopClock
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.store import Store
from sandpool.kube.api import Api
from sandpool.model.core import ConfigMap
from sandpool.model.kinds import CONFIG_MAPS, NAMESPACES
from support.api.flaky_api import FlakyApi

START = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def a_cluster(
    *, namespaces: Iterable[str] = ("default",), window: int = 20_000, history_limits: HistoryLimits = HistoryLimits()
) -> AsyncIterator[FlakyApi]:
    """`window` and `history_limits` say how many revisions back a watch may start."""
    clock = LoopClock(START)
    uids = count(1)
    store = await Store.open(MemoryLog(window), history_limits=history_limits)
    try:
        api = LocalApi(Objects(store, clock.now, lambda: f"00000000-0000-4000-8000-{next(uids):012x}"))
        for name in namespaces:
            await api.create(NAMESPACES, {"metadata": {"name": name}})
        yield FlakyApi(api)
    finally:
        await store.close()


async def put(api: Api, name: str, data: dict[str, str] | None = None, **metadata: Any) -> ConfigMap:
    """Any small object will do: a ConfigMap."""
    return await api.create(CONFIG_MAPS, {"metadata": {"name": name, **metadata}, "data": data or {}}, "default")


def half() -> float:
    return 0.5
