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
from sandpool.controlplane.store.history import Remember
from sandpool.controlplane.store.memory_log import MemoryLog
from sandpool.controlplane.store.store import Store
from sandpool.kube.api import Api
from sandpool.model.core import ConfigMap
from sandpool.model.kinds import CONFIG_MAPS, NAMESPACES
from support.flaky_api import FlakyApi

START = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def a_cluster(
    *, namespaces: Iterable[str] = ("default",), window: int = 20_000, remember: Remember = Remember()
) -> AsyncIterator[FlakyApi]:
    """`window` and `remember` say how many revisions back a watch may start."""
    clock = LoopClock(START)
    uids = count(1)
    store = await Store.open(MemoryLog(window), remember=remember)
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
