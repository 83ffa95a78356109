"""The wrappers of the port that other tests lean on: one counts, one fails on purpose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from sandpool.kube.api import Api
from sandpool.kube.errors import Conflict, NotFound, Unreachable
from sandpool.kube.http import HttpApi
from sandpool.model.kinds import PODS
from sandpool.model.patches import merge_patch
from support.api.counting_api import CountingApi
from support.api.faulty_api import FaultyApi
from support.network.scripted_peer import Peer, answer, forever, scripted_peer, stream

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "resourceVersion": "7"}, "spec": {"containers": []}}
PATCH = merge_patch({"metadata": {}})
EVENT = json.dumps({"type": "ADDED", "object": POD}).encode() + b"\n"


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with scripted_peer(forever(answer(POD))) as peer:
        yield peer


@pytest.fixture
def api(peer: Peer, to: Callable[..., HttpApi]) -> Api:
    return to(peer.url)


async def test_every_call_is_counted(peer: Peer, api: Api) -> None:
    counting = CountingApi(api)
    await counting.get(PODS, "a", "team")
    await counting.create(PODS, POD, "team")
    await counting.patch(PODS, "a", PATCH, "team")
    await counting.patch_status(PODS, "a", PATCH, "team")
    await counting.delete(PODS, "a", "team")
    peer.acts[:] = [answer({"metadata": {"resourceVersion": "1"}, "items": []}), stream(EVENT), answer({}, 404)]
    await counting.list(PODS)
    async with counting.watch(PODS) as events:
        assert [event.revision async for event in events] == [7]
    with pytest.raises(NotFound):
        await counting.get(PODS, "b", "team")
    assert [(made.verb, made.outcome) for made in counting.calls] == [
        ("get", "ok"),
        ("create", "ok"),
        ("patch", "ok"),
        ("patch_status", "ok"),
        ("delete", "ok"),
        ("list", "ok"),
        ("watch", "ok"),
        ("get", "NotFound"),
    ]
    assert counting.writes == 4
    assert counting.count("get") == 2
    assert counting.count(outcome="NotFound") == counting.totals["get", "pods", "NotFound"] == 1
    assert counting.count(resource="sandboxes") == 0
    assert counting.calls[1].name == "a"
    assert counting.calls[2].patch == PATCH
    counting.clear()
    assert counting.count() == 0


async def test_a_call_that_was_cancelled_is_counted_as_such(api: Api) -> None:
    faulty = FaultyApi(api)
    faulty.on("get").hold(asyncio.Event())
    counting = CountingApi(faulty)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await counting.get(PODS, "a", "team")
    assert counting.calls[0].outcome == "cancelled"


async def test_a_chosen_call_is_not_made(peer: Peer, api: Api) -> None:
    faulty = FaultyApi(api)
    fault = faulty.on("patch", "pods", "a", skip=1, times=2).refuse(Conflict("moved on"))
    outcomes = []
    for name in ("b", "a", "a", "b", "a", "a"):
        try:
            await faulty.patch(PODS, name, PATCH, "team")
            outcomes.append((name, "ok"))
        except Conflict:
            outcomes.append((name, "conflict"))
    assert outcomes == [("b", "ok"), ("a", "ok"), ("a", "conflict"), ("b", "ok"), ("a", "conflict"), ("a", "ok")]
    assert fault.met == 2
    assert len(peer.seen) == 4


async def test_other_verbs_are_left_alone(api: Api) -> None:
    faulty = FaultyApi(api)
    faulty.on("patch").refuse(Conflict("no"))
    await faulty.patch_status(PODS, "a", PATCH, "team")
    with pytest.raises(Conflict):
        await faulty.patch(PODS, "a", PATCH, "team")


async def test_an_answer_is_lost_although_the_call_was_made(peer: Peer, api: Api) -> None:
    faulty = FaultyApi(api)
    faulty.on("create").lose()
    with pytest.raises(Unreachable):
        await faulty.create(PODS, POD, "team")
    assert [seen.method for seen in peer.seen] == ["POST"]


async def test_a_call_waits(peer: Peer, api: Api) -> None:
    faulty, gate, late = FaultyApi(api), asyncio.Event(), asyncio.Event()
    faulty.on("delete").hold(gate)
    faulty.on("create").hold_answer(late)
    async with asyncio.TaskGroup() as group:
        delete = group.create_task(faulty.delete(PODS, "a", "team"))
        create = group.create_task(faulty.create(PODS, POD, "team"))
        await peer.asked(1)
        await faulty.get(PODS, "a", "team")
        assert [seen.method for seen in peer.seen] == ["POST", "GET"], "the delete is not made yet"
        assert not create.done(), "the create is made and not answered"
        late.set()
        await create
        gate.set()
        await delete
    assert peer.seen[-1].method == "DELETE"


async def test_a_watch_breaks_where_it_should(peer: Peer, api: Api) -> None:
    faulty = FaultyApi(api)
    faulty.on("watch", "pods").break_after(2)
    peer.acts[:] = [stream(EVENT * 3), stream(EVENT * 3)]
    async with faulty.watch(PODS) as events:
        assert [(await anext(events)).revision for _ in range(2)] == [7, 7]
        with pytest.raises(Unreachable):
            await anext(events)
    async with faulty.watch(PODS) as events:
        assert len([event async for event in events]) == 3


async def test_a_watch_that_does_not_begin(api: Api) -> None:
    faulty = FaultyApi(api)
    faulty.on("watch").refuse(Unreachable("no"))
    with pytest.raises(Unreachable):
        async with faulty.watch(PODS):
            pass
