"""Writes are paced by what the server answers: real sockets, a server that is slow, busy or broken, and counts instead of times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from sandpool.base.clock import SystemClock
from sandpool.kube.config import Cluster, Config, User
from sandpool.kube.errors import Conflict, InternalError, Invalid, ServerTimeout, Unavailable, Unreachable
from sandpool.kube.http import HttpApi, connect, judge
from sandpool.kube.pacing import Bounds, Outcome, Pacer
from sandpool.kube.priority import Priority, with_priority
from sandpool.kube.retry import RetryPolicy
from sandpool.model.kinds import PODS
from sandpool.model.patches import merge_patch
from support.clocks.step_clock import StepClock
from support.network.scripted_peer import answer, drop, forever, scripted_peer

PATCH = merge_patch({"metadata": {"labels": {"x": "y"}}})
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "team", "resourceVersion": "7"}}


class Busy:
    """A server that works on `at_once` requests at once; of more it lets `line` wait and refuses the rest, as kube-apiserver does."""

    def __init__(self, at_once: int, line: int = 1000, seconds: float = 0.002) -> None:
        self.at_once, self.line, self.seconds = at_once, line, seconds
        self.turn = asyncio.Semaphore(at_once)
        self.inside = self.most = self.refused = 0
        self.served: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        if self.inside >= self.at_once + self.line:
            self.refused += 1
            status = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": "TooManyRequests",
                "code": 429,
            }
            return web.json_response(status, status=429, headers={"Retry-After": "1"})
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            async with self.turn:
                await asyncio.sleep(self.seconds)
        finally:
            self.inside -= 1
        self.served.append(request.path.rpartition("/")[2])
        return web.json_response(POD)


@asynccontextmanager
async def listening(server: Busy) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def client(url: str, pacer: Pacer, **options: Any) -> HttpApi:
    return connect(Config(Cluster(url), User()), clock=SystemClock(), draw=lambda: 0.5, env={}, pacer=pacer, **options)


async def write(api: HttpApi, names: list[str], lane: Priority = Priority.URGENT) -> None:
    with with_priority(lane):
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(api.patch(PODS, name, PATCH, "team"))


async def test_a_server_that_works_on_few_at_once_is_sent_few_at_once() -> None:
    server, pacer = Busy(at_once=1, seconds=0.005), Pacer(Bounds(most=50))
    async with listening(server) as url, client(url, pacer) as api:
        await write(api, [f"n{number}" for number in range(600)])
        settled, server.most = pacer.view.limit, 0
        await write(api, [f"n{number}" for number in range(200)])
    assert pacer.lowered["slow"] > 0
    assert settled < 30
    assert server.most < 40, "without pacing it would be 50"
    assert len(server.served) == 800


async def test_a_server_that_refuses_is_asked_less_and_everything_is_served_in_the_end() -> None:
    server, pacer = Busy(at_once=2, line=2), Pacer(Bounds(most=50))
    names = [f"n{number}" for number in range(150)]
    async with listening(server) as url, client(url, pacer, policy=RetryPolicy(attempts=100, budget=600)) as api:
        await write(api, names)
    assert sorted(server.served) == sorted(names), "each exactly once"
    assert pacer.throttled == server.refused
    assert 0 < server.refused < 75, "without pacing every write is refused several times"
    assert pacer.view.limit < 20


async def test_refill_keeps_its_share_while_claims_wait_for_members() -> None:
    server, pacer = Busy(at_once=1), Pacer(Bounds(most=4, start=4))
    claims, members = [f"claim-{number}" for number in range(120)], [f"member-{number}" for number in range(40)]
    async with listening(server) as url, client(url, pacer, width=4) as api, asyncio.TaskGroup() as group:
        api.gate.expedite_background_while(lambda: True)
        group.create_task(write(api, claims))
        await asyncio.sleep(0)
        group.create_task(write(api, members, Priority.BACKGROUND))
    last = max(place for place, name in enumerate(server.served) if name.startswith("member"))
    assert last < 110, "all members are made while claims still wait; after them it would be the 160th"
    served = [name for name in server.served if name.startswith("claim")]
    early = served.index("claim-100")
    assert all(served.index(f"claim-{number}") < early for number in range(90)), "and claims stay in order"


async def test_a_throttled_write_keeps_its_place_before_younger_ones() -> None:
    busy = answer({"kind": "Status", "reason": "TooManyRequests", "code": 429}, 429, {"Retry-After": "1"})
    clock = StepClock()
    async with scripted_peer(busy, forever(answer(POD))) as peer:
        config = Config(Cluster(peer.url), User())
        async with connect(config, clock=clock, draw=lambda: 0.5, env={}, width=1) as api, asyncio.TaskGroup() as group:

            async def meanwhile() -> None:
                clock.during = None
                await peer.asked(2)

            clock.during = meanwhile
            for name in ("oldest", "second", "third", "fourth"):
                group.create_task(api.patch(PODS, name, PATCH, "team"))
    order = [seen.path.rpartition("/")[2] for seen in peer.seen]
    assert order == ["oldest", "second", "oldest", "third", "fourth"]


async def test_a_throttled_write_is_overtaken_once_however_long_it_should_rest() -> None:
    busy = answer({"kind": "Status", "reason": "TooManyRequests", "code": 429}, 429, {"Retry-After": "9"})
    clock = StepClock()
    clock.during = asyncio.Event().wait  # for ever
    async with scripted_peer(busy, forever(answer(POD))) as peer:
        config = Config(Cluster(peer.url), User())
        async with connect(config, clock=clock, draw=lambda: 0.5, env={}, width=1) as api:
            await write(api, ["oldest", "second", "third", "fourth"])
    order = [seen.path.rpartition("/")[2] for seen in peer.seen]
    assert order == ["oldest", "second", "oldest", "third", "fourth"]


@pytest.mark.parametrize(
    ("error", "seconds", "judged"),
    [
        (Unavailable("starting"), 0.001, Outcome.FAILED),
        (ServerTimeout("too slow"), 30.0, Outcome.FAILED),
        (Unreachable("no answer"), 10.0, Outcome.FAILED),
        (InternalError("etcdserver: request timed out"), 7.0, Outcome.FAILED),
        (InternalError("failed calling webhook"), 0.003, None),
        (Invalid("a test failed"), 0.003, None),
    ],
)
def test_only_what_says_that_the_server_is_busy_counts(
    error: Exception, seconds: float, judged: Outcome | None
) -> None:
    assert judge(error, seconds) is judged


async def test_a_server_that_cannot_answer_lowers_the_limit() -> None:
    pacer = Pacer(Bounds(most=50, start=20))
    unavailable = answer({"kind": "Status", "reason": "ServiceUnavailable", "code": 503}, 503)
    async with scripted_peer(unavailable, drop(), answer({}, 409)) as peer, client(peer.url, pacer) as api:
        for error in (Unavailable, Unreachable, Conflict):
            with pytest.raises(error):
                await api.patch(PODS, "a", PATCH, "team")
    assert pacer.view.limit == pytest.approx(20 * 4 / 9)
    assert pacer.lowered == {"throttled": 0, "failed": 2, "slow": 0}
