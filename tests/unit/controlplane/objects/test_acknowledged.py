"""Nothing is told before what it was derived from is durable: not success, not refusal, not absence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from itertools import count
from typing import Any

import pytest

from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.store.store import Store
from sandpool.kube.api import Preconditions
from sandpool.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, Unavailable
from sandpool.model import kinds
from sandpool.model.metadata import Revision, Uid
from support.api.local_objects import START, Bench, claim
from support.storage.logs import HeldLog


@pytest.fixture
async def held() -> AsyncIterator[tuple[Bench, HeldLog]]:
    log = HeldLog()
    store = await Store.open(log)
    uids = count(1)
    b = Bench(store, Objects(store, lambda: START, lambda: f"uid-{next(uids)}"))
    await settle(b, log, b.create(kinds.NAMESPACES, {"metadata": {"name": "default"}}))
    yield b, log
    log.commit(len(log.held))
    await store.close()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def settle(b: Bench, log: HeldLog, work: Coroutine[Any, Any, Any]) -> Any:
    task = asyncio.create_task(work)
    await turns()
    log.commit(len(log.held))
    return await task


async def expect_wait(log: HeldLog, *works: Coroutine[Any, Any, Any]) -> list[Any]:
    """None of these may answer before the commit; all do after it."""
    tasks = [asyncio.create_task(work) for work in works]
    await turns()
    assert not any(task.done() for task in tasks)
    log.commit(len(log.held))
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_success_and_what_builds_on_it(held: tuple[Bench, HeldLog]) -> None:
    b, log = held
    outcomes = await expect_wait(
        log,
        b.create(kinds.CLAIMS, claim()),
        b.patch(kinds.CLAIMS, "x", {"metadata": {"labels": {"a": "b"}}}),
        b.patch(
            kinds.CLAIMS, "x", {"metadata": {"labels": {"a": "b"}}}
        ),  # no difference: nothing of its own to wait for
    )
    assert [outcome["metadata"]["resourceVersion"] for outcome in outcomes] == ["2", "3", "3"]


async def test_reads_see_only_what_is_durable(held: tuple[Bench, HeldLog]) -> None:
    b, log = held
    creating = asyncio.create_task(b.create(kinds.CLAIMS, claim()))
    await turns()
    assert b.absent(kinds.CLAIMS, "x")
    assert b.names_of(kinds.CLAIMS) == []
    log.commit(len(log.held))
    await creating
    assert not b.absent(kinds.CLAIMS, "x")


async def test_refusals(held: tuple[Bench, HeldLog]) -> None:
    b, log = held
    created, *refused = await expect_wait(
        log,
        b.create(kinds.CLAIMS, claim()),
        b.create(kinds.CLAIMS, claim()),
        b.patch(kinds.CLAIMS, "x", [{"op": "test", "path": "/metadata/uid", "value": "other"}]),
        b.patch(kinds.CLAIMS, "x", {"metadata": {"resourceVersion": "1"}}),
        b.put(kinds.CLAIMS, "x", claim("x", uid="other")),
        b.delete(kinds.CLAIMS, "x", preconditions=Preconditions(uid=Uid("other"))),
        b.delete(kinds.CLAIMS, "x", preconditions=Preconditions(revision=Revision(1))),
    )
    assert created["metadata"]["name"] == "x"
    assert [type(error) for error in refused] == [AlreadyExists, Invalid, Conflict, Conflict, Conflict, Conflict]


async def test_absence(held: tuple[Bench, HeldLog]) -> None:
    b, log = held
    await settle(b, log, b.create(kinds.CLAIMS, claim()))
    deleted, *absent = await expect_wait(
        log,
        b.delete(kinds.CLAIMS, "x"),
        b.delete(kinds.CLAIMS, "x"),
        b.patch(kinds.CLAIMS, "x", {}),
        b.put(kinds.CLAIMS, "x", claim()),
    )
    assert deleted.finished
    assert [type(error) for error in absent] == [NotFound, NotFound, NotFound]
    with pytest.raises(NotFound):
        await b.delete(kinds.CLAIMS, "x")


async def test_a_deleter_that_goes_away_takes_nobody_with_him(held: tuple[Bench, HeldLog]) -> None:
    b, log = held
    await settle(b, log, b.create(kinds.CLAIMS, claim()))
    deleting = asyncio.create_task(b.delete(kinds.CLAIMS, "x"))
    waiting = asyncio.create_task(b.delete(kinds.CLAIMS, "x"))
    await turns()
    deleting.cancel()
    await turns()
    assert not waiting.done()
    log.commit(len(log.held))
    with pytest.raises(NotFound):
        await waiting
    assert b.absent(kinds.CLAIMS, "x")


async def test_a_lost_commit_loses_what_was_built_on_it(held: tuple[Bench, HeldLog]) -> None:
    b, log = held
    await settle(b, log, b.create(kinds.CLAIMS, claim("kept")))
    tasks = [
        asyncio.create_task(work)
        for work in (
            b.create(kinds.CLAIMS, claim("lost")),
            b.create(kinds.CLAIMS, claim("lost")),
            b.patch(kinds.CLAIMS, "kept", {"metadata": {"labels": {"a": "b"}}}),
            b.delete(kinds.CLAIMS, "kept"),
            b.delete(kinds.CLAIMS, "kept"),
        )
    ]
    await turns()
    log.fail()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 5
    assert b.names_of(kinds.CLAIMS) == ["kept"]
    assert "labels" not in b.get(kinds.CLAIMS, "kept")["metadata"]


async def test_that_a_namespace_is_absent_or_leaving(held: tuple[Bench, HeldLog]) -> None:
    b, log = held
    await settle(b, log, b.create(kinds.NAMESPACES, {"metadata": {"name": "t"}}))
    _, refused = await expect_wait(log, b.delete(kinds.NAMESPACES, "t"), b.create(kinds.CLAIMS, claim(), "t"))
    assert isinstance(refused, Forbidden)
    free = {"metadata": {"name": "t"}, "spec": {}}
    _, refused = await expect_wait(
        log, b.put(kinds.NAMESPACES, "t", free, "finalize"), b.create(kinds.CLAIMS, claim(), "t")
    )
    assert isinstance(refused, NotFound)


async def test_that_a_namespace_is_leaving_is_not_told_if_it_stays(held: tuple[Bench, HeldLog]) -> None:
    b, log = held
    await settle(b, log, b.create(kinds.NAMESPACES, {"metadata": {"name": "t"}}))
    tasks = [
        asyncio.create_task(b.delete(kinds.NAMESPACES, "t")),
        asyncio.create_task(b.create(kinds.CLAIMS, claim(), "t")),
    ]
    await turns()
    log.fail()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unavailable, Unavailable]
