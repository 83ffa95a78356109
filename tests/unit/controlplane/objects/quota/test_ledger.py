"""Quotas are enforced with the write: whatever is decided at the same time, the last place is taken once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandpool.base.clock import LoopClock
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.quota_status import QuotaStatus
from sandpool.controlplane.store.errors import StoreFailed
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.store import Store
from sandpool.kube.errors import Forbidden
from sandpool.model import kinds
from support.api.local_objects import START, Bench, claim, config_map, pod, read, sandbox

Body = dict[str, Any]


def quota(name: str = "few", **hard: Any) -> Body:
    return {"metadata": {"name": name}, "spec": {"hard": hard}}


async def several(b: Bench, *bodies: Body, resource: Any = kinds.PODS) -> tuple[int, list[str]]:
    """How many were made, and the refusals of the others."""
    answers = await asyncio.gather(*(b.create(resource, body) for body in bodies), return_exceptions=True)
    refused = [str(answer) for answer in answers if isinstance(answer, Forbidden)]
    assert len(refused) == sum(isinstance(answer, Exception) for answer in answers)
    return len(answers) - len(refused), refused


async def test_the_last_place_is_taken_once(b: Bench) -> None:
    await b.create(kinds.RESOURCE_QUOTAS, quota(pods=3))
    made, refused = await several(b, *(pod(f"p{n}") for n in range(10)))
    assert made == 3
    assert refused[0] == (
        'pods "p3" is forbidden: exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3'
    )
    assert len(b.names_of(kinds.PODS)) == 3


async def test_what_was_there_before_counts(b: Bench) -> None:
    await b.create(kinds.PODS, pod("a"))
    creating = asyncio.create_task(b.create(kinds.PODS, pod("b")))
    await asyncio.sleep(0)  # decided, and perhaps not durable yet
    await b.create(kinds.RESOURCE_QUOTAS, quota(pods=2))
    await creating
    assert (await several(b, pod("c")))[0] == 0


async def test_a_place_is_free_when_the_pod_is_gone_or_has_ended(b: Bench) -> None:
    await b.create(kinds.RESOURCE_QUOTAS, quota(pods=1))
    await b.create(kinds.PODS, pod("a", node="n"))
    await b.delete(kinds.PODS, "a", grace=30)
    assert (await several(b, pod("b")))[0] == 0, "it is leaving, but still there"
    await b.delete(kinds.PODS, "a", grace=0)
    assert (await several(b, pod("b", node="n")))[0] == 1
    await b.patch(kinds.PODS, "b", {"status": {"phase": "Succeeded"}}, "status")
    assert (await several(b, pod("c")))[0] == 1


async def test_other_namespaces_and_quotas_that_are_gone_hold_nobody_up(b: Bench) -> None:
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "other"}})
    await b.create(kinds.RESOURCE_QUOTAS, quota(pods=0))
    await b.create(kinds.PODS, pod(), "other")
    assert set(b.objects.quotas.ledgers) == {"default"}
    assert (await several(b, pod()))[0] == 0
    await b.delete(kinds.RESOURCE_QUOTAS, "few")
    assert b.objects.quotas.ledgers == {}
    assert b.store.decided is None, "nobody is told about writes any more"
    assert (await several(b, pod()))[0] == 1


async def test_a_quota_that_is_raised_lets_more_in(b: Bench) -> None:
    await b.create(kinds.RESOURCE_QUOTAS, quota(**{"count/configmaps": 1}))  # type: ignore[arg-type]
    assert (await several(b, config_map("a"), config_map("b"), resource=kinds.CONFIG_MAPS))[0] == 1
    await b.patch(kinds.RESOURCE_QUOTAS, "few", {"spec": {"hard": {"count/configmaps": 2}}})
    assert (await several(b, config_map("b"), config_map("c"), resource=kinds.CONFIG_MAPS))[0] == 1
    await b.patch(kinds.RESOURCE_QUOTAS, "few", {"spec": {"hard": {"count/configmaps": 0}}})
    await b.patch(kinds.CONFIG_MAPS, "a", {"data": {"a": "more"}})  # what is there may change
    assert (await several(b, config_map("d"), resource=kinds.CONFIG_MAPS))[0] == 0


async def test_several_quotas_hold_together(b: Bench) -> None:
    await b.create(kinds.RESOURCE_QUOTAS, quota("wide", pods=9))
    await b.create(kinds.RESOURCE_QUOTAS, quota("narrow", pods=1))
    made, refused = await several(b, pod("a"), pod("b"))
    assert made == 1
    assert "exceeded quota: narrow" in refused[0]


@pytest.mark.parametrize(
    ("resource", "make", "name"),
    [
        (kinds.CLAIMS, claim, "count/sandboxclaims.extensions.agents.x-k8s.io"),
        (kinds.SANDBOXES, sandbox, "count/sandboxes.agents.x-k8s.io"),
        (kinds.CONFIG_MAPS, config_map, "configmaps"),
    ],
)
async def test_kinds_that_are_only_counted(b: Bench, resource: Any, make: Any, name: str) -> None:
    await b.create(kinds.RESOURCE_QUOTAS, quota(**{name: 2}))  # type: ignore[arg-type]
    made, refused = await several(b, *(make(f"x{n}") for n in range(5)), resource=resource)
    assert made == 2
    assert f"requested: {name}=1, used: {name}=2, limited: {name}=2" in refused[0]


async def test_a_put_that_creates_is_asked_too(b: Bench) -> None:
    await b.create(kinds.RESOURCE_QUOTAS, quota(services=0))
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}
    with pytest.raises(Forbidden, match="exceeded quota"):
        await b.put(kinds.SERVICES, "s", service)


async def test_an_update_may_not_take_more_than_there_is(b: Bench) -> None:
    await b.create(kinds.RESOURCE_QUOTAS, quota(**{"services.nodeports": 1}))  # type: ignore[arg-type]
    ports = [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]
    await b.create(kinds.SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": ports}})
    with pytest.raises(Forbidden, match=r"requested: services\.nodeports=2, used: services\.nodeports=0"):
        await b.patch(kinds.SERVICES, "s", {"spec": {"type": "NodePort"}})
    await b.patch(kinds.SERVICES, "s", {"spec": {"type": "NodePort", "ports": ports[:1]}})
    await b.patch(kinds.SERVICES, "s", {"metadata": {"labels": {"a": "b"}}})


async def test_a_pod_that_comes_into_a_scope_must_fit_there(b: Bench) -> None:
    body = quota(pods=0)
    await b.create(kinds.RESOURCE_QUOTAS, {**body, "spec": {**body["spec"], "scopes": ["Terminating"]}})
    await b.create(kinds.PODS, pod("a"))
    await b.patch(kinds.PODS, "a", {"spec": {"containers": [{"name": "main", "image": "another"}]}})
    with pytest.raises(Forbidden, match="requested: pods=1, used: pods=0"):
        await b.patch(kinds.PODS, "a", {"spec": {"activeDeadlineSeconds": 60}})


async def test_a_dry_run_takes_no_place(b: Bench) -> None:
    await b.create(kinds.RESOURCE_QUOTAS, quota(pods=1))
    await b.create(kinds.PODS, pod("a"), dry_run=True)
    await b.create(kinds.PODS, pod("a"))
    with pytest.raises(Forbidden, match="exceeded quota"):
        await b.create(kinds.PODS, pod("b"), dry_run=True)


async def test_quotas_are_known_again_after_a_start(b: Bench) -> None:
    await b.create(kinds.RESOURCE_QUOTAS, quota(pods=1))
    await b.create(kinds.PODS, pod("a"))
    b.objects = Objects(b.store, lambda: START, lambda: "00000000-0000-4000-8000-999999999999")
    assert (await several(b, pod("b")))[0] == 0


async def test_writes_that_fail_leave_no_place_taken() -> None:
    class Failing(MemoryLog):
        broken = False

        def append(self, unit: Any) -> None:
            if not self.broken:
                super().append(unit)

    log = Failing()
    store = await Store.open(log)
    objects = Objects(store, lambda: START, iter(f"u{n}" for n in range(99)).__next__)
    b = Bench(store, objects)
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "default"}})
    await b.create(kinds.RESOURCE_QUOTAS, quota(pods=1))
    log.broken = True
    lost = asyncio.create_task(b.create(kinds.PODS, pod("a")))
    await asyncio.sleep(0)
    store.failed(StoreFailed("no room"))
    with pytest.raises(Exception, match="no room"):
        await lost
    log.broken = False
    assert (await several(b, pod("b"), pod("c")))[0] == 1
    await store.close()


async def test_what_a_restore_brings_is_enforced_at_once(b: Bench) -> None:
    await b.create(kinds.RESOURCE_QUOTAS, quota(pods=0))
    kept = b.store.scan("").records
    await b.delete(kinds.RESOURCE_QUOTAS, "few")
    assert (await several(b, pod("a")))[0] == 1
    await b.store.replace_all(kept, lambda record, revision: record.value)
    assert (await several(b, pod("b")))[0] == 0


@pytest.mark.looptime
async def test_the_status_says_what_is_used_and_is_written_once_for_many_changes(b: Bench) -> None:
    running = asyncio.create_task(QuotaStatus(b.objects, LoopClock(START)).run())
    try:
        await b.create(kinds.RESOURCE_QUOTAS, quota(pods=9, **{"limits.cpu": "2000m", "count/odd.example.com": 1}))  # type: ignore[arg-type]
        limited = {"containers": [{"name": "main", "image": "i", "resources": {"limits": {"cpu": "150m"}}}]}
        for n in range(5):
            await b.create(kinds.PODS, {"metadata": {"name": f"p{n}"}, "spec": limited})
        await asyncio.sleep(2)
        found = b.get(kinds.RESOURCE_QUOTAS, "few")["status"]
        assert found == {
            "hard": {"count/odd.example.com": "1", "limits.cpu": "2", "pods": "9"},
            "used": {"limits.cpu": "750m", "pods": "5"},
        }
        before = b.store.revision
        await asyncio.gather(*(b.delete(kinds.PODS, f"p{n}", grace=0) for n in range(5)))
        await asyncio.sleep(2)
        assert b.get(kinds.RESOURCE_QUOTAS, "few")["status"]["used"] == {"limits.cpu": "0", "pods": "0"}
        assert b.store.revision == before + 5 + 1
        await asyncio.sleep(60)
        assert b.store.revision == before + 5 + 1, "its own writes are no news to it"
    finally:
        running.cancel()


async def test_the_answer_is_told_when_what_it_was_derived_from_is_durable(b: Bench) -> None:
    await b.create(kinds.RESOURCE_QUOTAS, quota(pods=1))
    first = asyncio.create_task(b.create(kinds.PODS, pod("a")))
    second = asyncio.create_task(b.create(kinds.PODS, pod("b")))
    with pytest.raises(Forbidden):
        await second
    assert read(b.objects.get(kinds.PODS, "default", "a"))["metadata"]["name"] == "a"
    await first
