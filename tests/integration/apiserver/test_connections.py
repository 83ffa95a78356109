"""HTTP/1.1 as clients may speak it: requests behind each other, bodies in chunks, connections that end, and what a request costs."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from sandpool.controlplane.apiserver.connection import MOST_WAITING, Connection
from sandpool.controlplane.apiserver.limits import Limits
from sandpool.controlplane.apiserver.server import ServerOptions
from support.api.local_server import LocalServer, local_server

READY = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
MAPS = "/api/v1/namespaces/default/configmaps"
CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxclaims"


class Talk:
    def __init__(self, server: LocalServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer

    def ask(self, method: str, path: str, body: bytes = b"", more: str = "") -> None:
        length = "" if "Transfer-Encoding" in more else f"Content-Length: {len(body)}\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.server.token}\r\n{length}{more}\r\n"
        self.writer.write(head.encode() + body)

    async def answer(self, *, empty: bool = False) -> tuple[int, bytes, bytes]:
        async with asyncio.timeout(10):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = 0 if empty else int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return int(head[9:12]), head, await self.reader.readexactly(length)

    async def end(self) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.read()


@asynccontextmanager
async def talking(tmp_path: Path, **limits: Any) -> AsyncIterator[Talk]:
    async with local_server(tmp_path, options=ServerOptions(limits=Limits(**limits))) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port, ssl=server.tls())
        try:
            yield Talk(server, reader, writer)
        finally:
            writer.transport.abort()


async def test_requests_behind_each_other_are_answered_in_their_order(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        for number in range(20):  # those that write take longer than those that read
            made = msgspec.json.encode({"metadata": {"name": f"m{number}"}})
            talk.ask("POST", MAPS, made)
            talk.ask("GET", f"{MAPS}/m{number}")
        for number in range(20):
            for expected in (201, 200):
                status, _, body = await talk.answer()
                assert (status, msgspec.json.decode(body)["metadata"]["name"]) == (expected, f"m{number}")


async def test_a_body_in_chunks_and_one_that_waits_for_its_welcome(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        chunks = b'6\r\n{"meta\r\n17\r\ndata":{"name":"chunks"}\r\n1\r\n}\r\n0\r\n\r\n'
        talk.ask("POST", MAPS, chunks, "Transfer-Encoding: chunked\r\n")
        assert (await talk.answer())[0] == 201
        body = b'{"metadata":{"name":"welcome"}}'
        talk.ask("POST", MAPS, b"", "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n")
        assert await talk.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        talk.writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert (await talk.answer())[0] == 201


async def test_the_rest_of_a_refused_body_is_not_taken_for_a_request(tmp_path: Path) -> None:
    async with talking(tmp_path, body=1000) as talk:
        talk.ask("POST", MAPS, READY * 100)
        assert (await talk.answer())[0] == 413
        talk.writer.write(READY)
        assert (await talk.answer())[2] == b"ok"


async def test_head_says_how_long_it_would_be(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        talk.ask("HEAD", f"{MAPS}?limit=1")
        status, head, _ = await talk.answer(empty=True)
        assert status == 200
        assert b"content-length: " in head
        talk.writer.write(READY)
        assert (await talk.answer())[2] == b"ok"


@pytest.mark.parametrize(
    "last", [b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"GET /readyz HTTP/1.0\r\n\r\n"]
)
async def test_a_connection_that_is_to_end_ends(tmp_path: Path, last: bytes) -> None:
    async with talking(tmp_path) as talk:
        talk.writer.write(last)
        assert b"connection: close" in (await talk.answer())[1]
        assert await talk.end() == b""


async def test_a_connection_that_asks_nothing_more_is_closed_in_the_end(tmp_path: Path) -> None:
    async with talking(tmp_path, idle=1, stalled=0.1) as talk:  # the second only for the sweep to come often
        for _ in range(2):
            talk.writer.write(READY)
            assert (await talk.answer())[2] == b"ok"
            await asyncio.sleep(0.3)
        assert await talk.end() == b""


def calls_of_the_front() -> tuple[Counter[str], Any]:
    counted: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        function = frame.f_code.co_qualname
        if event == "call" and "/controlplane/apiserver/" in name and not function.startswith("Seats."):
            counted[function] += 1

    return counted, profile


async def test_what_a_request_costs_before_and_after_its_write(tmp_path: Path) -> None:
    """Calls of Python functions of this server, none of which are the store's: the same on every machine."""
    spec = {"warmPoolRef": {"name": "p"}}
    body = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "spec": spec}
    async with talking(tmp_path) as talk:
        costs = []
        for name in ("a", "b"):  # the first one is also the first of everything
            written = msgspec.json.encode({**body, "metadata": {"name": name}})
            for method, path, sent in (("POST", CLAIMS, written), ("DELETE", f"{CLAIMS}/{name}", b"")):
                counted, profile = calls_of_the_front()
                talk.ask(method, path, sent, "Accept: application/json\r\nContent-Type: application/json\r\n")
                sys.setprofile(profile)
                try:
                    status, _, _ = await talk.answer()
                finally:
                    sys.setprofile(None)
                assert status in {200, 201}
                costs.append(counted)
        assert costs[2].total() <= 49, costs[2]
        assert costs[3].total() <= 41, costs[3]


async def test_what_is_no_request_waits_for_the_answers_to_those_before_it(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        talk.ask("POST", MAPS, b'{"metadata":{"name":"first"}}')
        talk.ask("GET", f"{MAPS}/first")
        talk.writer.write(b"nonsense\r\n\r\n")
        assert (await talk.answer())[0] == 201
        status, head, _ = await talk.answer()
        assert (status, b"connection: close" in head) == (200, True)
        assert await talk.end() == b""


async def test_what_is_no_request_does_not_get_into_a_watch(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        talk.ask("GET", f"{MAPS}?watch=1&timeoutSeconds=1")
        await talk.reader.readuntil(b"\r\n\r\n")
        talk.writer.write(b"nonsense\r\n\r\n" + b"a" * 100_000)
        assert await talk.end() == b"0\r\n\r\n"


async def test_a_body_that_breaks_off_is_refused_once(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        talk.ask("POST", MAPS, b"3\r\nabcnonsense", "Transfer-Encoding: chunked\r\n")
        assert (await talk.answer())[0] == 400
        assert await talk.end() == b""
    async with talking(tmp_path, body=1000) as talk:  # the answer was there before the body broke
        talk.ask("POST", MAPS, b"7d0\r\n" + b"a" * 2000, "Transfer-Encoding: chunked\r\n")
        assert (await talk.answer())[0] == 413
        talk.writer.write(b"nonsense")
        assert b"HTTP/1.1" not in await talk.end()


async def test_after_the_last_answer_nothing_is_done(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        connection = Connection(server.server.state)
        transport = Closing()
        connection.connection_made(transport)
        connection.data_received(READY)
        await asyncio.sleep(0.01)
        connection.shutdown()
        assert (transport.closed, len(transport.written)) == (True, 1)
        connection.data_received(READY)  # TLS hands on what came while it says goodbye
        assert connection.serving is None
        connection.connection_lost(None)


class Closing(asyncio.Transport):
    """Like TLS, it goes on reading for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def test_who_was_still_shaking_hands_when_the_server_stopped_is_not_served(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        await server.server.stop()
        connection, transport = Connection(server.server.state), Closing()
        connection.connection_made(transport)
        connection.data_received(READY)
        assert (transport.closed, connection.serving) == (True, None)
        connection.connection_lost(None)


async def test_headers_after_a_body_are_not_kept(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        connection = Connection(server.server.state)
        connection.connection_made(Closing())
        connection.data_received(b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a:b\r\n" * 1000)
        assert connection.headers == [(b"transfer-encoding", b"chunked")]
        connection.connection_lost(None)


async def test_the_body_of_a_refused_upgrade_is_not_taken_for_a_request(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        more = f"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: {len(READY)}\r\n"
        talk.writer.write(f"POST /api HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())
        assert b"connection: close" in (await talk.answer())[1]
        talk.writer.write(READY)
        assert await talk.end() == b""


async def test_http_1_0_knows_no_chunks(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        path = f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion=0"
        talk.ask("POST", MAPS, b'{"metadata":{"name":"seen"}}')
        assert (await talk.answer())[0] == 201
        token = talk.server.token
        talk.writer.write(f"GET {path} HTTP/1.0\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        head, _, body = (await talk.end()).partition(b"\r\n\r\n")
        assert b"connection: close" in head
        assert b"transfer-encoding" not in head
        assert msgspec.json.decode(body)["type"] == "ADDED"


async def test_a_body_that_was_not_welcomed_may_never_come(tmp_path: Path) -> None:
    async with talking(tmp_path, body=10) as talk:
        talk.writer.write(
            f"POST {MAPS} HTTP/1.1\r\nAuthorization: Bearer {talk.server.token}\r\n"
            "Expect: 100-continue\r\nContent-Length: 11\r\n\r\n".encode()
        )
        status, head, _ = await talk.answer()
        assert (status, b"connection: close" in head) == (413, True)
        assert await talk.end() == b""


async def test_a_length_of_thousands_of_digits(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        body = b'{"metadata":{"name":"zeros"}}'
        length = "0" * 5000 + str(len(body))
        talk.writer.write(
            f"POST {MAPS} HTTP/1.1\r\nAuthorization: Bearer {talk.server.token}\r\nContent-Length: {length}\r\n\r\n".encode()
            + body
        )
        assert (await talk.answer())[0] == 201


async def test_no_more_requests_wait_behind_each_other_than_the_limit(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        talk.writer.write(READY * (MOST_WAITING + 50))
        answers = await talk.end()
        assert answers.count(b"HTTP/1.1 200 OK") == MOST_WAITING + 1
        assert answers.count(b"connection: close") == 1


async def test_a_long_head_is_refused_however_it_comes(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        for before in (b"", READY):
            connection, transport = Connection(server.server.state), Closing()
            connection.connection_made(transport)
            connection.data_received(before + b"GET /readyz HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n")
            await asyncio.sleep(0.01)
            assert (transport.closed, len(transport.written)) == (True, 1)
            assert transport.written[0][9:12] == (b"200" if before else b"431")
            connection.connection_lost(None)


async def test_what_has_not_changed_says_nothing_of_its_length(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        first = await server.request("GET", "/apis", headers={"Accept": aggregated})
        again = await server.request(
            "GET", "/apis", headers={"Accept": aggregated, "If-None-Match": first.headers["ETag"]}
        )
        assert (again.status, "Content-Length" in again.headers) == (304, False)


async def test_a_request_that_waits_behind_another_is_not_slow(tmp_path: Path) -> None:
    async with talking(tmp_path, arrival=0.3) as talk:
        talk.ask("GET", f"{MAPS}?watch=1&timeoutSeconds=1")
        await talk.reader.readuntil(b"\r\n\r\n")
        body = b'{"metadata":{"name":"behind"}}'
        talk.ask("POST", MAPS, b"", "Transfer-Encoding: chunked\r\n")
        assert await talk.reader.readuntil(b"\r\n\r\n") == b"0\r\n\r\n"
        talk.writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert (await talk.answer())[0] == 201


async def test_a_request_for_no_path(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        for target, status in (("*", 404), ("http://x", 404), ("http://x/version", 200)):
            talk.ask("GET", target)
            assert (await talk.answer())[0] == status
