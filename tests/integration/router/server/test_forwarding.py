"""Requests reach the sandbox and responses the client, in every framing that HTTP/1.1 has."""

from __future__ import annotations

import asyncio
import gc
import json
import socket

import pytest

from sandpool.router.forward import Forward
from sandpool.router.ports import Caller
from sandpool.router.values import Admitted, Answer, Peer
from support.network.router_server import TARGET, Client, OpenGate, Script, client, router, upstream


async def mirror(peer: Client) -> None:
    """Answers each request with its own head and body as text."""
    while True:
        head = await peer.reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode("latin-1").split("\r\n")[1:-2])
        body = b""
        if fields.get("transfer-encoding") == "chunked":
            body = b"".join([piece async for piece in peer.chunks()])
        elif "content-length" in fields:
            body = await peer.reader.readexactly(int(fields["content-length"]))
        said = head + body
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said))
        if not head.startswith(b"HEAD"):
            peer.send(said)


def saying(*words: bytes, close: bool = True) -> Script:
    """A script that reads one head and says this."""

    async def script(peer: Client) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        for word in words:
            peer.send(word)
            await peer.writer.drain()
        if not close:
            await peer.reader.read()

    return script


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE", "PATCH", "PROPFIND"])
async def test_methods(method: str) -> None:
    async with upstream(mirror) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            caller.ask(method, "/a%2Fb/../c?x=%20#no"[:-3], "Authorization: Bearer secret")
            if method == "HEAD":
                status, headers = await caller.head()
                assert status == 200
                assert int(headers["content-length"]) > 50
            else:
                status, _, body = await caller.answer()
                assert body.startswith(f"{method} /a%2Fb/../c?x=%20 HTTP/1.1\r\nhost: localhost\r\n".encode())
                assert b"secret" not in body
            caller.ask("GET", "/second")  # the framing of the first was understood
            assert (await caller.answer())[2].startswith(b"GET /second")


async def test_a_body_with_a_length() -> None:
    async with upstream(mirror) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            caller.ask("POST", "/", body=b"x" * 1000)
            _, _, body = await caller.answer()
            assert body.endswith(b"content-length: 1000\r\n\r\n" + b"x" * 1000)
            (outcome,) = await gate.outcomes(1)
            assert (outcome.status, outcome.received, outcome.sent, outcome.error) == (200, 1000, len(body), "")


async def test_a_body_in_chunks_that_come_slowly() -> None:
    async with upstream(mirror) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            caller.ask("POST", "/", "Transfer-Encoding: chunked")
            await caller.writer.drain()
            for piece in (b"5;x=y\r\nhel", b"lo\r", b"\n6\r\n world\r\n0\r\nX-T: 1\r\n", b"\r\n"):
                caller.send(piece)
                await caller.writer.drain()
            _, _, body = await caller.answer()
            assert body.endswith(b"transfer-encoding: chunked\r\n\r\nhello world")
            assert (await gate.outcomes(1))[0].received == 11
            caller.ask("GET", "/again")
            assert (await caller.answer())[0] == 200
            assert gate.connections == 1


async def test_connections_are_used_again() -> None:
    async with upstream(mirror) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at):
            for _ in range(3):
                async with client(at) as caller:
                    for _ in range(3):
                        caller.ask("GET", "/")
                        assert (await caller.answer())[0] == 200
        assert len(gate.ended) == 9
        assert gate.connections == 1


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with upstream(mirror) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            for number in range(5):
                caller.ask("POST", f"/{number}", body=b"b" * number)
            for number in range(5):
                assert (await caller.answer())[2].startswith(b"POST /%d " % number)


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nX-T: 1\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 200 OK\r\n\r\nabcde", b"abcde"),
        (b"HTTP/1.0 200 OK\r\n\r\nabcde", b"abcde"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nabcde", b"abcde"),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 55\r\n\r\n", b""),
    ],
)  # fmt: skip
async def test_framings_of_responses(said: bytes, heard: bytes) -> None:
    async with upstream(saying(said)) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            for _ in range(2):
                caller.ask("GET", "/")
                status, headers = await caller.head()
                if status == 304:
                    assert headers["content-length"] == "55"
                elif headers.get("transfer-encoding") == "chunked":
                    assert b"".join([piece async for piece in caller.chunks()]) == heard
                else:
                    assert await caller.reader.readexactly(int(headers.get("content-length", 0))) == heard
            assert [outcome.sent for outcome in await gate.outcomes(2)] == [len(heard)] * 2


async def test_a_client_of_http_1_0_gets_no_chunks() -> None:
    script = saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", close=False)
    async with upstream(script) as port, router(OpenGate(port)) as (_, at), client(at) as caller:
        caller.send(b"GET / HTTP/1.0\r\n\r\n")
        head, _, body = (await caller.rest()).partition(b"\r\n\r\n")
        assert body == b"abc"
        assert b"connection: close" in head
        assert b"chunked" not in head


async def test_interim_responses_pass() -> None:
    script = saying(
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        close=False,
    )
    async with upstream(script) as port, router(OpenGate(port)) as (_, at), client(at) as caller:
        caller.ask("GET", "/")
        status, headers = await caller.head()
        assert (status, headers["link"]) == (103, "</a>")
        assert (await caller.answer())[2] == b"ok"


async def test_a_body_that_waits_to_be_asked_for() -> None:
    async def careful(peer: Client) -> None:
        head = await peer.reader.readuntil(b"\r\n\r\n")
        assert b"expect: 100-continue" in head
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await peer.reader.readexactly(5) == b"hello"
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with upstream(careful) as port, router(OpenGate(port)) as (_, at), client(at) as caller:
        caller.ask("PUT", "/", "Content-Length: 5", "Expect: 100-continue")
        assert (await caller.head())[0] == 100
        caller.send(b"hello")
        assert (await caller.answer())[0] == 200
        caller.ask("PUT", "/body", "Content-Length: 5", "Expect: 100-continue")  # read by the gate itself
        assert (await caller.head())[0] == 100
        caller.send(b"world")
        assert json.loads((await caller.answer())[2]) == {"detail": "world"}


async def test_a_response_before_the_body_has_come() -> None:
    script = saying(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!", close=False)
    async with upstream(script) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            caller.ask("PUT", "/", "Content-Length: 100000")
            caller.send(b"some")
            status, headers, body = await caller.answer()
            assert (status, body, headers["connection"]) == (413, b"no!", "close")
            assert await caller.rest() == b""
            assert (await gate.outcomes(1))[0].error == ""


async def test_an_early_answer_can_be_read_in_peace() -> None:
    """A client that is still sending is not reset before it has read why it should stop."""
    script = saying(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!", close=False)
    async with upstream(script) as port, router(OpenGate(port)) as (_, at):
        for path, status in (("/", 413), ("/refused", 403)):
            async with client(at) as caller:
                caller.ask("PUT", path, "Content-Length: 50000000")
                for _ in range(40):
                    caller.send(bytes(100_000))
                    await asyncio.sleep(0)
                assert (await caller.answer())[0] == status
                assert await caller.rest() == b""


async def test_what_the_gate_answers_itself() -> None:
    gate = OpenGate(1)
    async with router(gate) as (_, at), client(at) as caller:
        caller.ask("GET", "/refused", "X-Request-ID: mine")
        status, headers, body = await caller.answer()
        assert (status, json.loads(body), headers["x-request-id"]) == (403, {"detail": "not you"}, "mine")
        caller.ask("HEAD", "/refused")
        assert int((await caller.head())[1]["content-length"]) == len(body)
        caller.ask("POST", "/body", body=b"from the body")
        assert json.loads((await caller.answer())[2]) == {"detail": "from the body"}
        caller.ask("POST", "/refused", body=b"nobody reads it")
        assert (await caller.answer())[0] == 403
        caller.ask("POST", "/body", body=b"x" * 5000)
        assert json.loads((await caller.answer())[2]) == {"detail": "x" * 1000}
        caller.ask("GET", "/bug")
        status, _, body = await caller.answer()
        assert (status, json.loads(body)["code"]) == (500, "INTERNAL")
        assert [outcome.status for outcome in await gate.outcomes(6)] == [403, 403, 200, 403, 200, 500]


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    gate = OpenGate(port)
    async with router(gate) as (_, at), client(at) as caller:
        for _ in range(2):
            caller.ask("POST", "/", body=b"1")
            status, _, body = await caller.answer()
            assert status == 502
            assert json.loads(body) == {
                "detail": "nobody listens there", "code": "UNAVAILABLE", "message": "nobody listens there",
            }  # fmt: skip
        assert [outcome.error for outcome in await gate.outcomes(2)] == ["refused"] * 2
        assert all(isinstance(decided, Admitted) for _, _, decided, _ in gate.ended)


async def test_redirects_lead_to_where_the_client_sees_it() -> None:
    script = saying(b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n")
    async with upstream(script) as port:
        gate = OpenGate(port)
        gate.decide = Admitted(TARGET, "me", b"", gate.connect, "pool", prefix=b"/port/TOKEN")
        async with router(gate) as (_, at), client(at) as caller:
            caller.ask("GET", "/")
            assert (await caller.answer())[1]["location"] == "/port/TOKEN/login"


async def test_the_flow_is_counted_while_it_flows() -> None:
    async with upstream(mirror) as port:
        gate = OpenGate(port)
        async with router(gate) as (_, at), client(at) as caller:
            caller.ask("POST", "/", body=b"x" * 10)
            _, _, body = await caller.answer()
            await gate.outcomes(1)
            decided = gate.ended[0][2]
            assert isinstance(decided, Admitted)
            assert decided.flow.count() == len(body) + 10


async def test_a_connection_that_was_proved_elsewhere() -> None:
    async with upstream(mirror) as port:
        gate = OpenGate(port)
        async with router(gate) as (server, _):
            ours, theirs = socket.socketpair()
            who = Peer("10.9.8.7", proved=Caller("somebody"))
            server.take(theirs, who)
            with ours:
                ours.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_sendall(ours, b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                data = b""
                async with asyncio.timeout(20):
                    while piece := await loop.sock_recv(ours, 65536):
                        data += piece
            assert b"x-forwarded-for: 10.9.8.7" in data
            await gate.outcomes(1)
            assert gate.ended[0][1] == who
            assert not isinstance(gate.ended[0][2], Answer)


async def test_nothing_is_left_of_a_request_that_is_answered() -> None:
    """By counting references: the collector of cycles looks at what has grown old, as a long stream has, only now and then."""
    gc.collect()
    gc.disable()
    try:
        async with upstream(mirror) as port:
            gate = OpenGate(port)
            async with router(gate) as (_, at), client(at) as caller:
                for _ in range(5):
                    caller.ask("GET", "/")
                    await caller.answer()
                await gate.outcomes(5)
                left = sum(isinstance(one, Forward) for one in gc.get_objects())
                assert left <= 1, "the last one may still be on its way out"
    finally:
        gc.enable()
