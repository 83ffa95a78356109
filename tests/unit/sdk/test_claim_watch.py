"""One watch for all who wait: everybody hears what is theirs, whoever reads, whoever leaves, and whatever breaks."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiohttp import web

from sandpool.kube.config import Cluster as ApiServer
from sandpool.kube.config import User
from sandpool.kube.errors import Unreachable
from sandpool.sdk._async.claim_watch import ClaimWatch, Subscription
from sandpool.sdk._async.cluster import Cluster
from sandpool.sdk._sync.claim_watch import ClaimWatch as BlockingClaimWatch
from sandpool.sdk._sync.cluster import Cluster as BlockingCluster
from sandpool.sdk.config import Resolved
from sandpool.sdk.credentials import Credentials
from sandpool.sdk.deadline import after
from sandpool.sdk.errors import TimedOut
from support.network.scripted_peer import Act, Peer, answer, forever, scripted_peer, stream

PATH = "/claims"


def line(name: str, revision: int, kind: str = "MODIFIED") -> bytes:
    metadata = {"name": name, "resourceVersion": str(revision)}
    return json.dumps({"type": kind, "object": {"metadata": metadata}}).encode() + b"\n"


def a_cluster(peer: Peer, kind: Any = Cluster) -> Any:
    resolved = Resolved(ApiServer(server=peer.url), User(), "default", "", True, "", "", "the test")
    return kind(resolved, Credentials(User(), {}))


class Wire:
    """A watch that says what a test tells it to."""

    def __init__(self) -> None:
        self.opened = 0
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    def say(self, *lines: bytes | None) -> None:
        """None: the connection breaks."""
        for each in lines:
            self._lines.put_nowait(each)

    async def act(self, request: web.Request) -> web.StreamResponse:
        self.opened += 1
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        while (said := await self._lines.get()) is not None:
            await response.write(said)
        assert request.transport is not None
        request.transport.abort()
        return response


async def heard(subscription: Subscription, times: int = 1, seconds: float = 30.0) -> list[str]:
    found = []
    for _ in range(times):
        event = await subscription.next(after(seconds))
        found.append("?" if event is None else event.revision)
    return found


Play = Callable[[ClaimWatch, Peer], Awaitable[None]]


async def played(play: Play, *acts: Act) -> Peer:
    async with scripted_peer(*acts) as peer:
        cluster = a_cluster(peer)
        watch = ClaimWatch(cluster.watching(PATH, {"labelSelector": "mine=1"}))
        try:
            await play(watch, peer)
        finally:
            watch.close()
            await cluster.close()
    return peer


async def test_everybody_hears_their_own() -> None:
    async def play(watch: ClaimWatch, peer: Peer) -> None:
        with (
            watch.subscribe("a") as a,
            watch.subscribe("b") as b,
            watch.subscribe("c") as c,
            watch.subscribe("b") as twin,
        ):
            got = await asyncio.gather(heard(a, 2), heard(b), heard(c, 3), heard(twin))
            assert got == [["1", "4"], ["2"], ["3", "5", "6"], ["2"]]

    said = b"".join(line(name, at) for at, name in enumerate("abcacc", start=1))
    peer = await played(play, stream(said[:70], said[70:75], said[75:], hold=asyncio.Event()))
    assert [one.query["labelSelector"] for one in peer.seen] == ["mine=1"]
    assert "resourceVersion" not in peer.seen[0].query
    assert peer.seen[0].query["timeoutSeconds"] == "300", "however little time those have who read it first"


async def test_whoever_leaves_lets_another_one_read() -> None:
    wire = Wire()

    async def play(watch: ClaimWatch, peer: Peer) -> None:
        with watch.subscribe("a") as a, watch.subscribe("b") as b, watch.subscribe("c") as c:
            wire.say(line("a", 0))
            await heard(a)
            waiting = [asyncio.create_task(heard(each)) for each in (a, b, c)]
            await asyncio.sleep(0)
            waiting[0].cancel()  # it was the one that read
            await asyncio.wait(waiting[:1])
            wire.say(line("c", 1))
            assert await waiting[2] == ["1"]
            wire.say(line("b", 2))
            assert await waiting[1] == ["2"]
        with watch.subscribe("later") as later:
            wire.say(line("b", 3), line("later", 4))
            assert await heard(later) == ["4"]

    await played(play, wire.act)
    assert wire.opened == 1, "and nobody asked again"


async def test_one_that_runs_out_of_time_leaves_the_watch_as_it_was() -> None:
    wire = Wire()

    async def play(watch: ClaimWatch, peer: Peer) -> None:
        with watch.subscribe("a") as a, watch.subscribe("b") as b:
            patient = asyncio.create_task(heard(b))
            with pytest.raises(TimedOut):
                await heard(a, seconds=0.05)
            wire.say(line("b", 1))
            assert await patient == ["1"]

    await played(play, wire.act)
    assert wire.opened == 1


async def test_a_broken_watch_goes_on_where_it_was() -> None:
    async def play(watch: ClaimWatch, peer: Peer) -> None:
        with watch.subscribe("a") as a, watch.subscribe("b") as b:
            assert await asyncio.gather(heard(a), heard(b, 2)) == [["7"], ["8", "9"]]

    peer = await played(
        play, stream(line("a", 7), line("b", 8), broken=True), stream(line("b", 9), hold=asyncio.Event())
    )
    assert [one.query.get("resourceVersion") for one in peer.seen] == [None, "8"]


async def test_where_something_may_be_missing_everybody_is_told_to_look() -> None:
    gone = json.dumps({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}).encode() + b"\n"

    async def play(watch: ClaimWatch, peer: Peer) -> None:
        with watch.subscribe("a") as a, watch.subscribe("b") as b:
            assert await asyncio.gather(heard(a, 2), heard(b, 2)) == [["?", "3"], ["?", "4"]]

    peer = await played(play, stream(gone), stream(line("a", 3), line("b", 4), hold=asyncio.Event()))
    assert [one.query.get("resourceVersion") for one in peer.seen] == [None, None]


async def test_a_server_that_is_gone_is_told_to_all_who_wait() -> None:
    async def play(watch: ClaimWatch, peer: Peer) -> None:
        with watch.subscribe("a") as a, watch.subscribe("b") as b:
            for found in await asyncio.gather(heard(a), heard(b), return_exceptions=True):
                assert isinstance(found, Unreachable)

    await played(play, forever(stream(broken=True)))


async def test_a_refusal_is_told_to_whoever_asked() -> None:
    async def play(watch: ClaimWatch, peer: Peer) -> None:
        with watch.subscribe("a") as a, pytest.raises(Exception, match="not you"):
            await heard(a)

    await played(play, answer({"reason": "Forbidden", "message": "not you"}, 403))


async def test_threads_share_one_watch() -> None:
    wire = Wire()
    count = 20
    ready = threading.Barrier(count)

    def wait(watch: BlockingClaimWatch, name: str) -> str:
        with watch.subscribe(name) as subscription:
            ready.wait(30)
            event = subscription.next(after(30))
            assert event is not None
            return str(event.object["metadata"]["name"])

    def work(cluster: BlockingCluster) -> list[str]:
        watch = BlockingClaimWatch(cluster.watching(PATH, {}))
        try:
            with ThreadPoolExecutor(count) as threads:
                return list(threads.map(lambda name: wait(watch, name), [f"c{n}" for n in range(count)]))
        finally:
            watch.close()
            cluster.close()

    async with scripted_peer(wire.act) as peer:
        working = asyncio.create_task(asyncio.to_thread(work, a_cluster(peer, BlockingCluster)))
        await peer.asked(1)
        for number in reversed(range(count)):
            wire.say(line(f"c{number}", number + 1))
            await asyncio.sleep(0)
        assert await working == [f"c{n}" for n in range(count)]
        wire.say(None)
    assert wire.opened == 1
