"""Claims that are kept waiting before they are taken in, at the HTTP server: they leave room for whoever can be served, and for other tenants."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandpool.controllers.claim.inline import awaited_pool
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.server import ServerOptions
from sandpool.kube.inline import Refusal
from sandpool.model import kinds
from sandpool.model.claim import SandboxClaim
from sandpool.model.metadata import Key
from support.api.local_server import Answered, LocalServer, local_server
from support.api.tenants import Tenant, tenant

SEATS, PARKED, FLOOD = 40, 10, 60
AFTER = 7
ENV = [{"name": "A", "value": "b"}]

Post = Callable[..., Awaitable[Answered]]


class Crowded:
    """Whoever claims from the pool `crowded` pauses for so long; none is ever served in the write that creates it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.paused: list[Key] = []
        self.outside: list[Key] = []
        self.too_many = False

    def delay(self, namespace: str, body: Mapping[str, Any]) -> float:
        pool = awaited_pool(namespace, body)
        if pool is None or pool.name != "crowded":
            return 0.0
        self.paused.append(pool)
        return self._seconds

    def overflow(self, namespace: str, body: Mapping[str, Any]) -> Refusal | None:
        pool = awaited_pool(namespace, body)
        if pool is None or pool.name != "crowded":
            return None
        self.outside.append(pool)
        return Refusal(AFTER, "cannot wait for a sandbox now: many wait")

    def creating(self, obj: SandboxClaim) -> Refusal | None:
        return Refusal(AFTER, "cannot wait for a sandbox now: too many wait") if self.too_many else None


@asynccontextmanager
async def a_server(folder: Path, hook: Crowded) -> AsyncIterator[LocalServer]:
    limits = Limits(requests=SEATS, graceful=0.1)
    async with local_server(folder, options=ServerOptions(limits=limits)) as server:
        server.objects.hooks.register(kinds.CLAIMS, hook)
        yield server


def body(name: str, pool: str, **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": SandboxClaim.api_version, "kind": SandboxClaim.kind, "metadata": {"name": name}}
    return {**head, "spec": {"warmPoolRef": {"name": pool}, **spec}}


def posting(by: LocalServer | Tenant, namespace: str) -> Post:
    return lambda name, pool, **spec: by.request("POST", kinds.CLAIMS.path(namespace), body(name, pool, **spec))


@asynccontextmanager
async def flooded(hook: Crowded, post: Post) -> AsyncIterator[list[Answered]]:
    """So many claims of the crowded pool at once; the answers of those that are answered, while the others are kept waiting."""
    tasks = [asyncio.ensure_future(post(f"c{number}", "crowded")) for number in range(FLOOD)]
    try:
        async with asyncio.timeout(60):
            while sum(task.done() for task in tasks) + len(hook.paused) < FLOOD:
                await asyncio.sleep(0.01)
        yield [task.result() for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_claims_that_pause_leave_seats_for_what_can_be_served(tmp_path: Path) -> None:
    hook = Crowded(600.0)
    async with a_server(tmp_path, hook) as server:
        post = posting(server, "default")
        async with flooded(hook, post) as answers:
            assert len(hook.paused) == PARKED
            refusals = Counter((each.status, each.headers["Retry-After"], each.json["reason"]) for each in answers)
            assert refusals == {(429, str(AFTER), "TooManyRequests"): FLOOD - PARKED}
            assert {"many wait" in each.json["message"] for each in answers} == {True}
            assert (await post("b", "other")).status == 201, "claims of other pools are taken in"
            assert (await post("own", "crowded", env=ENV)).status == 201, "and those that wait for no member"
            found = await server.request("GET", kinds.CLAIMS.path("default"))
            assert [each["metadata"]["name"] for each in found.json["items"]] == ["b", "own"]


async def test_tenants_share_how_many_may_pause(tmp_path: Path) -> None:
    hook = Crowded(600.0)
    async with a_server(tmp_path, hook) as server:
        greedy, modest = await tenant(server, "greedy"), await tenant(server, "modest")
        async with flooded(hook, posting(greedy, "greedy")) as answers:
            parked = len(hook.paused)
            assert PARKED // 2 < parked < PARKED, "one alone has nearly all"
            assert {(each.status, each.headers["Retry-After"]) for each in answers} == {(429, str(AFTER))}
            theirs = asyncio.ensure_future(posting(modest, "modest")("c", "crowded"))
            async with asyncio.timeout(60):
                while len(hook.paused) == parked and not theirs.done():
                    await asyncio.sleep(0.01)
            assert hook.paused[-1] == Key("modest", "crowded"), "there is room for another"
            for who in (greedy, modest):
                assert (await posting(who, who.namespace)("b", "other")).status == 201
            theirs.cancel()
            await asyncio.gather(theirs, return_exceptions=True)


async def test_who_has_paused_makes_room(tmp_path: Path) -> None:
    hook = Crowded(0.001)
    async with a_server(tmp_path, hook) as server:
        post = posting(server, "default")
        for number in range(3 * PARKED):
            assert (await post(f"c{number}", "crowded")).status == 201
        assert (len(hook.paused), hook.outside) == (3 * PARKED, [])


@pytest.mark.parametrize("token", [None, "wrong"])
async def test_nobody_learns_how_many_wait_before_it_has_said_who_it_is(tmp_path: Path, token: str | None) -> None:
    hook = Crowded(600.0)
    async with a_server(tmp_path, hook) as server:
        path = kinds.CLAIMS.path("default")
        hook.too_many = True
        assert (await server.request("POST", path, body("c", "other"), token=token)).status == 401
        known = await server.request("POST", path, body("c", "other"))
        assert (known.status, known.headers["Retry-After"]) == (429, str(AFTER))
        async with flooded(hook, posting(server, "default")):
            asked = len(hook.outside)
            assert (await server.request("POST", path, body("c", "crowded"), token=token)).status == 401
            assert len(hook.outside) == asked
            assert (await server.request("POST", path, body("c", "crowded"))).status == 429
        assert (await server.request("GET", path)).json["items"] == [], "and nothing is stored"
