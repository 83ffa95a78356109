"""Short requests that walk over many objects, or over many changes, wait for their tenant's turn. Scans are counted, by turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from sandpool.base.turns import BYTES
from sandpool.controlplane.api import LocalApi
from sandpool.controlplane.apiserver.fairness import ResponseBudget, list_selected
from sandpool.controlplane.apiserver.handlers.watch import BEGIN, Watches
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.negotiate import Form
from sandpool.controlplane.objects.options import ListQuery
from sandpool.controlplane.store.store import Store
from sandpool.model import kinds
from sandpool.telemetry.metrics import Metrics
from support.api.local_objects import Bench, bench, config_map

MANY = 3_000


class Scans:
    """In which turn of the event loop, and for whom, the store was scanned."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns: list[int] = []
        self.tenants: list[str] = []
        self.passed = 0
        real = store.scan

        def scan(prefix: str, **options: Any) -> Any:
            self.turns.append(self.passed)
            self.tenants.append(prefix.split("/")[-2])
            return real(prefix, **options)

        monkeypatch.setattr(store, "scan", scan)

    def check(self, work: int) -> None:
        """As many in one turn as are worth one, and another tenant's among the first."""
        together = BYTES // work + 1
        assert len(self.turns) == 41
        assert max(Counter(self.turns).values()) <= together
        assert self.tenants.index("blue") <= 2 * together

    async def count(self) -> None:
        while True:
            self.passed += 1
            await asyncio.sleep(0)


def a_call(tenant: str, **params: str) -> Any:
    return SimpleNamespace(
        user=SimpleNamespace(tenant=tenant),
        namespace=tenant,
        resource=kinds.CONFIG_MAPS,
        form=Form.OBJECT,
        params=params,
    )


async def fill(b: Bench, namespace: str) -> None:
    await b.objects.create(kinds.NAMESPACES, "", {"metadata": {"name": namespace}})
    for number in range(MANY):
        await b.objects.create(kinds.CONFIG_MAPS, namespace, config_map(f"c{number}"))


@pytest.mark.parametrize("kind", ["all", "selected", "of an earlier revision"])
async def test_lists_take_turns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as b:
        for tenant in ("red", "blue"):
            await fill(b, tenant)
        queries = {tenant: query(b, tenant, kind) for tenant in ("red", "blue")}
        if kind == "of an earlier revision":
            await fill(b, "green")  # the changes of others are walked over, too
        scans, sending = Scans(b.store, monkeypatch), ResponseBudget(Limits())
        counting = asyncio.create_task(scans.count())
        lists = [
            list_selected(b.objects, sending, a_call(tenant), kinds.CONFIG_MAPS, queries[tenant])
            for tenant in (*["red"] * 40, "blue")
        ]
        await asyncio.gather(*lists)
        counting.cancel()
        scans.check(b.objects.list_work(kinds.CONFIG_MAPS, "red", queries["red"]))


def query(b: Bench, tenant: str, kind: str) -> ListQuery:
    if kind == "all":
        return ListQuery()
    if kind == "selected":
        return ListQuery(labels="!a", limit=1)
    return ListQuery(limit=1, after=b.objects.list(kinds.CONFIG_MAPS, tenant, ListQuery(limit=1)).after)


async def test_watches_that_begin_with_many_objects_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as b:
        for tenant in ("red", "blue"):
            await fill(b, tenant)
        scans, sending = Scans(b.store, monkeypatch), ResponseBudget(Limits())
        watches = Watches(b.objects, Limits(), Metrics(), sending, lambda: b.now, lambda: 0.5)
        counting = asyncio.create_task(scans.count())
        await asyncio.gather(*(watches.watch(a_call(tenant)) for tenant in (*["red"] * 40, "blue")))
        counting.cancel()
        scans.check(BEGIN * b.objects.list_work(kinds.CONFIG_MAPS, "red"))


async def test_a_short_page_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as b:
        await fill(b, "red")
        scans, sending = Scans(b.store, monkeypatch), ResponseBudget(Limits())
        for _ in range(3):
            await list_selected(b.objects, sending, a_call("red"), kinds.CONFIG_MAPS, ListQuery(limit=10))
        assert scans.turns == [0, 0, 0]


async def test_a_controllers_list_of_small_objects_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as b:
        await fill(b, "red")
        scans = Scans(b.store, monkeypatch)
        counting = asyncio.create_task(scans.count())
        page = await LocalApi(b.objects).list(kinds.CONFIG_MAPS, "red")
        counting.cancel()
        assert len(page.items) == MANY
        stored = sum(len(record.value) for record in b.objects.list(kinds.CONFIG_MAPS, "red").records)
        assert scans.passed > stored // 65_536
