"""Watches over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from sandpool.kube.api import EventType
from sandpool.kube.errors import Gone, Unreachable, Unreadable
from sandpool.kube.http import HttpApi
from sandpool.kube.transport import Limits
from sandpool.model.kinds import PODS
from sandpool.model.metadata import Revision
from support.clocks.step_clock import StepClock
from support.network.scripted_peer import answer, drop, forever, hang, scripted_peer, stream


def a_line(kind: str, name: str, revision: int) -> bytes:
    metadata = {"name": name, "namespace": "team", "resourceVersion": str(revision)}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}
    return json.dumps({"type": kind, "object": pod}).encode() + b"\n"


def a_status(code: int, reason: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m", "reason": reason, "code": code}


async def test_events_as_they_come_and_a_normal_end(to: Callable[..., HttpApi]) -> None:
    first, second = a_line("ADDED", "a", 5), a_line("MODIFIED", "a", 6) + a_line("DELETED", "a", 7)
    async with scripted_peer(stream(first[:20], first[20:] + second[:30], second[30:])) as peer:
        async with to(peer.url).watch(PODS, "team", since=Revision(4), timeout=30) as events:
            got = [(event.type, event.revision) async for event in events]
        with pytest.raises(StopAsyncIteration):
            await anext(events)
    assert got == [(EventType.ADDED, 5), (EventType.MODIFIED, 6), (EventType.DELETED, 7)]
    assert peer.seen[0].query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "4",
        "timeoutSeconds": "30",
    }


async def test_an_event_is_there_while_the_stream_is_open(to: Callable[..., HttpApi]) -> None:
    done = asyncio.Event()
    async with scripted_peer(stream(a_line("ADDED", "a", 5), hold=done)) as peer:
        async with to(peer.url).watch(PODS) as events:
            assert (await anext(events)).revision == 5
        done.set()


async def test_a_revision_that_is_gone_at_once(to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(answer(a_status(410, "Expired"), 410)) as peer:
        with pytest.raises(Gone):
            async with to(peer.url).watch(PODS, since=Revision(1)):
                pass


async def test_a_revision_that_is_gone_later(to: Callable[..., HttpApi]) -> None:
    gone = json.dumps({"type": "ERROR", "object": a_status(410, "Expired")}).encode() + b"\n"
    async with scripted_peer(stream(a_line("ADDED", "a", 5) + gone)) as peer, to(peer.url).watch(PODS) as events:
        assert (await anext(events)).revision == 5, "what came before is delivered"
        with pytest.raises(Gone):
            await anext(events)


@pytest.mark.parametrize("tail", [b"", a_line("ADDED", "b", 6)[:30]], ids=["between events", "inside an event"])
async def test_a_connection_that_breaks(tail: bytes, to: Callable[..., HttpApi]) -> None:
    broken = stream(a_line("ADDED", "a", 5), tail or b"\n", broken=True)
    async with scripted_peer(broken) as peer, to(peer.url).watch(PODS) as events:
        assert (await anext(events)).revision == 5
        with pytest.raises(Unreachable):
            await anext(events)


async def test_an_end_inside_an_event(to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(stream(a_line("ADDED", "a", 5)[:30])) as peer:
        with pytest.raises(Unreadable, match="inside an event"):
            async with to(peer.url).watch(PODS) as events:
                await anext(events)


async def test_a_busy_server_is_asked_again(to: Callable[..., HttpApi], clock: StepClock) -> None:
    busy = answer(a_status(429, "TooManyRequests"), 429, {"Retry-After": "2"})
    async with scripted_peer(busy, stream(a_line("ADDED", "a", 5))) as peer, to(peer.url).watch(PODS) as events:
        assert (await anext(events)).revision == 5
    assert [int(slept) for slept in clock.sleeps] == [2]


async def test_a_server_that_does_not_begin(to: Callable[..., HttpApi]) -> None:
    done = asyncio.Event()
    async with scripted_peer(hang(done)) as peer:
        with pytest.raises(Unreachable):
            async with to(peer.url, limits=Limits(request=0.4)).watch(PODS):
                pass
        done.set()


async def test_a_quiet_watch_may_outlast_a_request(to: Callable[..., HttpApi]) -> None:
    """The time allowed for a request is the time for a watch to begin, not to last."""
    done = asyncio.Event()
    async with scripted_peer(stream(a_line("ADDED", "a", 5), hold=done), hang(asyncio.Event())) as peer:
        api = to(peer.url, limits=Limits(request=0.4))
        async with api.watch(PODS) as events:
            await anext(events)
            with pytest.raises(Unreachable):
                await api.get(PODS, "a", "team")  # takes all of the time that a request has
            done.set()
            with pytest.raises(StopAsyncIteration):
                await anext(events)


async def test_watches_and_requests_do_not_share_connections(to: Callable[..., HttpApi]) -> None:
    done = asyncio.Event()
    page = answer({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": []})
    watches = [stream(a_line("ADDED", "a", 5), hold=done) for _ in range(3)]
    async with scripted_peer(page, *watches, page) as peer:
        api = to(peer.url, limits=Limits(connections=1))
        await api.list(PODS)
        async with api.watch(PODS) as one, api.watch(PODS) as two, api.watch(PODS) as three:
            for events in (one, two, three):
                await anext(events)
            await api.list(PODS)  # would wait for ever if the watches held the only connection
        done.set()
    connections = [seen.connection for seen in peer.seen]
    assert connections[0] == connections[4]
    assert len(set(connections)) == 4


async def test_leaving_a_watch_ends_its_connection(to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(stream(a_line("ADDED", "a", 5), hold=asyncio.Event())) as peer:
        async with to(peer.url).watch(PODS) as events:
            await anext(events)
        async with asyncio.timeout(10):
            while not peer.disconnected(0):
                await asyncio.sleep(0)


async def test_a_watch_that_is_lost_before_it_began(to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(forever(drop())) as peer:
        with pytest.raises(Unreachable):
            async with to(peer.url).watch(PODS):
                pass
