"""One tenant takes all it can get; another, with a token of its own, watches, writes, connects and claims as if it were alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sandpool.controlplane.apiserver.connection import Connection
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.server import ServerOptions
from support.api.local_server import LocalServer, local_server
from support.api.tenants import Tenant, tenant
from support.api.unread import Unread

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Town:
    server: LocalServer
    greedy: Tenant
    modest: Tenant


@asynccontextmanager
async def town(folder: Path, **limits: Any) -> AsyncIterator[Town]:
    """Its clock stands still, so that how much is written in a second does not depend on the machine."""
    moment = datetime.now(UTC)
    options = ServerOptions(limits=Limits(**limits), now=lambda: moment)
    async with local_server(folder, options=options) as server:
        yield Town(server, await tenant(server, "greedy"), await tenant(server, "modest"))


@asynccontextmanager
async def many(server: LocalServer, number: int, said: bytes, *, slow: bool = False) -> AsyncIterator[list[Unread]]:
    """So many connections on which that was said, without the sockets. Nobody reads on them; those that are not slow hide it."""
    made: list[tuple[Connection, Unread]] = []
    for index in range(number):
        connection, transport = Connection(server.server.state), Unread()
        made.append((connection, transport))
        connection.connection_made(transport)
        transport.connection = connection if slow else None
        connection.data_received(said)
        if index % 100 == 99:
            await asyncio.sleep(0.01)
    async with asyncio.timeout(60):
        while any(not transport.written and not transport.gone for _, transport in made):
            await asyncio.sleep(0.01)
    try:
        yield [transport for _, transport in made]
    finally:
        for connection, _ in made:
            connection.connection_lost(None)


def codes(transports: list[Unread]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for transport in transports:
        code = bytes(transport.written[9:12])
        found[code] = found.get(code, 0) + 1
    return found


async def works(someone: Tenant) -> None:
    """Whatever one does."""
    async with someone.watching() as lines:
        assert lines.status == 200
        made = await someone.store("made")
        assert made.status == 201, made.body
        async with asyncio.timeout(60):
            assert msgspec.json.decode(await lines.content.readline())["type"] == "ADDED"
    claim = {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "metadata": {"name": "c"},
        "spec": {"warmPoolRef": {"name": "p"}},
    }
    path = f"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{someone.namespace}/sandboxclaims"
    assert (await someone.request("POST", path, claim)).status == 201
    assert (await someone.request("DELETE", f"{path}/c")).status == 200
    assert (await someone.request("GET", someone.maps)).status == 200
    assert (await someone.request("DELETE", f"{someone.maps}/made")).status == 200


@pytest.mark.parametrize("limits", [{"watches": 20}, {}], ids=["20", "default"])
async def test_all_watches(tmp_path: Path, limits: dict[str, int]) -> None:
    async with town(tmp_path, **limits) as here:
        most = limits.get("watches", Limits().watches)
        asked = here.greedy.head("GET", f"{here.greedy.maps}?watch=1")
        async with many(here.server, most + 50, asked) as watches:
            assert codes(watches) == {b"200": most, b"429": 50}  # alone it may have them all
            await works(here.modest)
            async with here.modest.watching(), here.modest.watching():
                refused = await here.greedy.request("GET", f"{here.greedy.maps}?watch=1")
                assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
            assert (await here.server.request("GET", f"{here.modest.maps}?watch=1&timeoutSeconds=1")).status == 200


async def test_a_watch_that_gives_way_ends_as_if_its_time_were_up(tmp_path: Path) -> None:
    async with town(tmp_path, watches=2) as here, AsyncExitStack() as stack:
        first = await stack.enter_async_context(here.greedy.watching())
        newest = await stack.enter_async_context(here.greedy.watching())
        other = await stack.enter_async_context(here.modest.watching())
        assert (first.status, newest.status, other.status) == (200, 200, 200)
        async with asyncio.timeout(60):
            assert await newest.content.read() == b""  # a whole answer: an incomplete one raises
        await here.greedy.store("seen")
        async with asyncio.timeout(60):
            assert msgspec.json.decode(await first.content.readline())["type"] == "ADDED"


async def test_all_requests_in_flight(tmp_path: Path) -> None:
    """Each waits for a body that its client does not send."""
    async with town(tmp_path, requests=20) as here:
        said = here.greedy.head("POST", here.greedy.maps, "Content-Length: 100\r\n")
        made = []
        for _ in range(30):
            reader, writer = await here.greedy.connect()
            writer.write(said)
            made.append((reader, writer))
        async with asyncio.timeout(30):
            while (await here.greedy.request("GET", here.greedy.maps)).status != 429:
                await asyncio.sleep(0.01)
        for _ in range(3):
            await works(here.modest)
        assert (await here.server.request("DELETE", f"{here.greedy.maps}/none")).status == 404
        for _, writer in made:
            writer.transport.abort()


async def test_all_connections(tmp_path: Path) -> None:
    async with town(tmp_path, connections=30) as here:
        said = here.greedy.head("GET", here.greedy.maps)
        async with many(here.server, 40, said) as held:
            assert codes(held) == {b"200": 30, b"429": 10}  # each stays open, idle
            await works(here.modest)
            assert sum(transport.gone for transport in held) >= 11  # those that were refused, and one that gave way
            assert (await here.server.request("GET", here.greedy.maps)).status == 200


async def test_a_flood_of_connections_that_say_nothing(tmp_path: Path) -> None:
    async with town(tmp_path) as here, AsyncExitStack() as stack:
        made: list[tuple[Connection, Unread]] = []
        for _ in range(Limits().connections + 100):
            connection, transport = Connection(here.server.server.state), Unread()
            connection.connection_made(transport)
            made.append((connection, transport))
        stack.callback(lambda: [connection.connection_lost(None) for connection, _ in made])
        await works(here.modest)
        assert (await here.server.request("GET", here.greedy.maps)).status == 200


async def test_a_store_that_one_wants_to_fill(tmp_path: Path) -> None:
    """250 MB in objects of 1 MB, as fast as they are taken; what is refused is not stored."""
    async with town(tmp_path) as here:
        stored, refused = 0, None
        while stored < 250 and refused is None:
            answer = await here.greedy.store(f"m{stored}", MB)
            if answer.status == 201:
                stored += 1
            else:
                refused = answer
        assert refused is not None, "250 MB were stored"
        assert refused.status in {403, 429}
        await works(here.modest)
        assert (await here.modest.store("large", MB)).status == 201
        assert (await here.greedy.request("DELETE", f"{here.greedy.maps}/m0")).status == 200
        assert (await here.server.request("DELETE", f"{here.greedy.maps}/m1")).status == 200
        assert (await here.server.request("DELETE", here.greedy.maps)).status == 200


async def test_one_object_that_is_written_again_and_again(tmp_path: Path) -> None:
    """Its size stays the same, but each version is kept for a while."""
    async with town(tmp_path) as here:
        assert (await here.greedy.store("m", MB)).status == 201
        codes = []
        for number in range(250):
            patch = {"metadata": {"labels": {"number": str(number)}}}  # a patch of few bytes stores all of it again
            answer = await here.greedy.request(
                "PATCH", f"{here.greedy.maps}/m", patch, content_type="application/merge-patch+json"
            )
            codes.append(answer.status)
            if answer.status != 200:
                break
        assert codes[-1] == 429, "250 MB of history were stored"
        assert int(answer.headers["Retry-After"]) >= 1
        await works(here.modest)


def unread(transports: list[Unread]) -> int:
    return sum(len(transport.written) for transport in transports)


async def test_watches_that_nobody_reads(tmp_path: Path) -> None:
    """One object of one megabyte becomes one event for each of them."""
    async with town(tmp_path) as here:
        asked = here.greedy.head("GET", f"{here.greedy.maps}?watch=1")
        async with many(here.server, 600, asked, slow=True) as watches:
            assert (await here.greedy.store("large", MB)).status == 201
            await works(here.modest)
            async with asyncio.timeout(30):
                while unread(watches) == unread(watches[:1]) or any(not (w.gone or w.paused) for w in watches):
                    await asyncio.sleep(0.01)
            assert unread(watches) <= 256 * 1024 * 1024
            await works(here.modest)


async def test_lists_that_nobody_reads(tmp_path: Path) -> None:
    """Each holds on to all that it lists, as it was."""
    async with town(tmp_path) as here:
        for number in range(40):
            assert (await here.greedy.store(f"m{number}", MB)).status == 201
        asked = here.greedy.head("GET", here.greedy.maps)
        async with many(here.server, 40, asked, slow=True) as lists:
            assert codes(lists)[b"429"] >= 40 - 1024 // 38
            await works(here.modest)
            assert (await here.server.request("GET", here.greedy.maps)).status == 200
            whole = f"{here.greedy.maps}?watch=1&timeoutSeconds=1"
            assert (await here.greedy.request("GET", whole)).status == 429  # it would begin with all of them too


@pytest.mark.parametrize("variables", [3000, 300], ids=["large", "not so large"])
async def test_bodies_that_end_in_the_same_moment(tmp_path: Path, variables: int) -> None:
    """Each takes a good while to work through. A short request of another tenant waits for one of them, not for all."""
    pod = {
        "metadata": {"generateName": "p"},
        "spec": {
            "containers": [
                {"name": "m", "image": "i", "env": [{"name": f"V{n}", "value": "v"} for n in range(variables)]}
            ]
        },
    }
    body = msgspec.json.encode(pod)
    length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    async with town(tmp_path) as here:
        asked = here.greedy.head("POST", "/api/v1/namespaces/greedy/pods?dryRun=All", length) + body[:-1]
        lines = [(Connection(here.server.server.state), Unread()) for _ in range(81)]
        for connection, transport in lines:
            connection.connection_made(transport)
        *greedy, (modest, sent) = lines
        try:
            for connection, _ in greedy:
                connection.data_received(asked)
            async with asyncio.timeout(60):
                while here.server.server.seats.shares.holds("greedy") < len(greedy):
                    await asyncio.sleep(0)
                for connection, _ in greedy:
                    connection.data_received(body[-1:])
                modest.data_received(here.modest.head("GET", f"{here.modest.maps}/none"))
                while not sent.written:
                    await asyncio.sleep(0)
                answered = sum(bool(transport.written) for _, transport in greedy)
                assert answered < 5 * (3000 // variables)
                while not all(transport.written for _, transport in greedy):
                    await asyncio.sleep(0)
            assert codes([transport for _, transport in greedy]) == {b"201": len(greedy)}
        finally:
            for connection, _ in lines:
                connection.connection_lost(None)


DATA = msgspec.json.encode({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "y"}, "data": {"k": "v"}})
COPIES = [{"op": "copy", "from": "/data", "path": f"/data/{n}"} for n in range(8)]
SELECTOR = "%2C".join(f"k{n}+in+(v{n}%2Cw%2Cx%2Cy%2Cz)" for n in range(60))


@pytest.mark.parametrize(
    ("method", "path", "kind", "body"),
    [
        ("GET", f"?labelSelector={SELECTOR}", "", b""),
        ("PATCH", "/m?dryRun=All", "application/json-patch+json", msgspec.json.encode(COPIES)),
        ("PATCH", "/large?dryRun=All", "application/merge-patch+json", b'{"data":{"k":"v"}}'),
        ("POST", "?dryRun=All", "application/yaml", DATA),
        ("POST", "?dryRun=All", "application/YAML", DATA),
        ("GET", "/large", "", b""),
        ("GET", "/large?pretty=true", "", b""),
        ("PUT", "/large?dryRun=All", "application/json", msgspec.json.encode({"metadata": {"name": "large"}})),
        ("POST", "?dryRun=All", "application/json", msgspec.json.encode({"metadata": {"name": "large"}})),
        ("DELETE", "/large?dryRun=All", "", b""),
        ("DELETE", "?dryRun=All", "", b""),
        ("DELETE", f"?dryRun=All&labelSelector={SELECTOR}", "", b""),
        ("POST", "/api/v1/namespaces/greedy/serviceaccounts/large/token", "application/json", b"{}"),
        ("GET", "/openapi/v3/api/v1", "", b""),
    ],
    ids=[
        *("a selector", "copies of copies", "a large object", "yaml", "YAML", "read", "pretty", "put", "taken"),
        *("deleted", "all deleted", "some deleted", "a token", "a page"),
    ],
)
async def test_short_requests_that_take_long(tmp_path: Path, method: str, path: str, kind: str, body: bytes) -> None:
    """Many of them, sent in the same moment, are begun one after the other, and what is quick passes in between."""
    length = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n" if body else ""
    async with town(tmp_path) as here:
        assert (await here.greedy.store("m")).status == 201
        assert (await here.greedy.store("large", 300_000)).status == 201
        account = {"metadata": {"name": "large"}, "secrets": [{"name": f"s{number}"} for number in range(10_000)]}
        made = await here.greedy.request("POST", "/api/v1/namespaces/greedy/serviceaccounts", account)
        assert made.status == 201
        whole = path if path.startswith(("/api/", "/openapi/")) else f"{here.greedy.maps}{path}"
        asked = here.greedy.head(method, whole, length) + body
        lines = [(Connection(here.server.server.state), Unread()) for _ in range(15)]
        *greedy, (modest, sent) = lines
        for connection, transport in lines:
            connection.connection_made(transport)
        try:
            for connection, _ in greedy:
                connection.data_received(asked)
            modest.data_received(here.modest.head("GET", f"{here.modest.maps}/none"))
            async with asyncio.timeout(60):
                while not sent.written:
                    await asyncio.sleep(0)
                assert sum(bool(transport.written) for _, transport in greedy) < 5
                while not all(transport.written for _, transport in greedy):
                    await asyncio.sleep(0)
            assert codes([transport for _, transport in greedy]).keys() <= {b"200", b"201", b"409", b"422"}
        finally:
            for connection, _ in lines:
                connection.connection_lost(None)


async def test_thousands_of_watches_hear_of_a_change_in_turn(tmp_path: Path) -> None:
    """In one turn of the loop some of them do, not all."""
    async with town(tmp_path) as here:
        said = here.greedy.head("GET", f"{here.greedy.maps}?watch=true")
        async with many(here.server, 1000, said) as watches:
            begun = sum(len(transport.written) for transport in watches)
            assert (await here.greedy.store("news")).status == 201
            async with asyncio.timeout(60):
                size = 0
                while not size:
                    await asyncio.sleep(0)
                    size = sum(len(transport.written) for transport in watches) - begun
                heard = sum(b"ADDED" in transport.written for transport in watches)
                assert heard < 500
                while not all(b"ADDED" in transport.written for transport in watches):
                    await asyncio.sleep(0.01)


async def test_long_lists_leave_room_between_their_pieces(tmp_path: Path) -> None:
    """In a turn of the loop one piece of one of them is sent, not one of each."""
    async with town(tmp_path) as here:
        for number in range(12):
            assert (await here.greedy.store(f"m{number}", 300_000)).status == 201
        lists = [(Connection(here.server.server.state), Unread()) for _ in range(20)]
        for connection, transport in lists:
            connection.connection_made(transport)
        most = last = 0
        try:
            for connection, _ in lists:
                connection.data_received(here.greedy.head("GET", here.greedy.maps))
            async with asyncio.timeout(60):
                while last < 20 * 12 * 300_000:
                    await asyncio.sleep(0)
                    sent = sum(len(transport.written) for _, transport in lists)
                    most, last = max(most, sent - last), sent
            assert most < 3 * 300_000
        finally:
            for connection, _ in lists:
                connection.connection_lost(None)
