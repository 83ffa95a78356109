"""HTTP of the SDK against servers that behave in every way, with and without an event loop."""

from __future__ import annotations

import io
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sandpool.kube.errors import Refused, Unreachable, Unreadable
from sandpool.sdk.errors import Dropped, TimedOut, TooLarge
from sandpool.sdk.origin import Origin
from support.network.scripted_socket import (
    WORLDS,
    Act,
    Blocking,
    Scripted,
    Waiting,
    ok,
    read_head,
    read_request,
    scripted,
)

World = Blocking | Waiting


@pytest.fixture(params=WORLDS, ids=lambda world: world.name)
def world(request: pytest.FixtureRequest) -> Callable[..., Any]:
    @contextmanager
    def made(*acts: Act, **options: Any) -> Iterator[tuple[World, Scripted]]:
        with scripted(*acts) as server:
            client = request.param(server.origin, **options)
            try:
                yield client, server
            finally:
                client.close()

    return made


def answering(*answers: bytes, heads: list[bytes] | None = None) -> Act:
    """One answer for each request, all on one connection; then it is closed."""

    def act(line: socket.socket) -> None:
        for answer in answers:
            head, _ = read_request(line)
            if not head:
                return
            if heads is not None:
                heads.append(head)
            line.sendall(answer)

    return act


def test_a_connection_is_used_again(world: Any) -> None:
    with world(answering(ok(b"one"), ok(b"two"))) as (client, _):
        assert client.request("GET", "/a").body == b"one"
        assert client.request("POST", "/b", body=b"x").body == b"two"


def test_what_is_sent(world: Any) -> None:
    heads: list[bytes] = []
    with world(answering(ok(), heads=heads), headers=[("X-Always", "1")]) as (client, server):
        client.request("POST", "/a?b=c", headers=[("X-Once", "2")], body=b"12345")
    rows = heads[0].split(b"\r\n")
    assert rows[0] == b"POST /a?b=c HTTP/1.1"
    assert f"Host: {server.origin.authority}".encode() in rows
    assert {b"X-Always: 1", b"X-Once: 2", b"Content-Length: 5"} <= set(rows)


def test_a_prefix_of_the_address_comes_first(world: Any) -> None:
    heads: list[bytes] = []
    with scripted(answering(ok(), heads=heads)) as server:
        client = Blocking(Origin("http", server.origin.host, server.origin.port, "/base"))
        client.request("GET", "/a")
        client.close()
    assert heads[0].startswith(b"GET /base/a HTTP/1.1")


@pytest.mark.parametrize(
    "closing",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n1",
        b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n1",
        b"HTTP/1.1 200 OK\r\n\r\n1",  # until it closes
        ok(b"1") + b"and something nobody asked for",
    ],
    ids=["close", "http-1.0", "until-closed", "too-much"],
)
def test_a_connection_that_cannot_be_used_again_is_not(world: Any, closing: bytes) -> None:
    def tempting(line: socket.socket) -> None:
        """Goes on listening, but for an answer that only its own end can end."""
        read_request(line)
        line.sendall(closing)
        if b"\r\n\r\n1" in closing and b"Content-Length" in closing and read_head(line):
            line.sendall(ok(b"used again"))

    with world(tempting, answering(ok(b"2"))) as (client, _):
        assert client.request("GET", "/").body == b"1"
        assert client.request("POST", "/").body == b"2"


def test_a_kept_connection_that_was_closed_is_noticed_before_a_request_is_lost(world: Any) -> None:
    with world(answering(ok(b"1")), answering(ok(b"2"))) as (client, server):
        client.request("GET", "/")
        server.closed.acquire(timeout=10)
        # The first connection is closed. A POST must not be tried on it: nobody could tell its fate.
        assert client.request("POST", "/").body == b"2"


def dropping(line: socket.socket) -> None:
    """Answers once, takes a second request and hangs up without a word."""
    read_request(line)
    line.sendall(ok(b"1"))
    read_request(line)


def test_a_request_that_may_be_repeated_is_sent_again_on_a_new_connection(world: Any) -> None:
    with world(dropping, answering(ok(b"2"))) as (client, _):
        client.request("GET", "/")
        assert client.request("GET", "/").body == b"2"


def test_a_request_that_may_not_be_repeated_is_not(world: Any) -> None:
    with world(dropping, answering(ok(b"2"))) as (client, _):
        client.request("GET", "/")
        with pytest.raises(Dropped):
            client.request("POST", "/", body=b"x")
        client.request("GET", "/")  # lets the second act play


def test_a_new_connection_that_ends_without_an_answer_is_not_tried_again(world: Any) -> None:
    with world(lambda line: bool(read_request(line)) and None, answering(ok())) as (client, _):
        with pytest.raises(Dropped):
            client.request("GET", "/")
        client.request("GET", "/")


@pytest.mark.parametrize("kind", WORLDS)
def test_nobody_listens(kind: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = kind(Origin("http", "127.0.0.1", port))
    with pytest.raises(Refused, match="is the server running"):
        client.request("GET", "/", timeout=10)
    client.close()


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + ok(b"x"), b"x"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + ok(b"y"), b"y"),
    ],
    ids=["chunked", "204", "100", "103"],
)
def test_framings(world: Any, answer: bytes, body: bytes) -> None:
    with world(answering(answer, ok(b"next"))) as (client, _):
        assert client.request("GET", "/").body == body
        assert client.request("GET", "/").body == b"next"


def test_a_head_has_no_body(world: Any) -> None:
    with world(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", ok(b"next"))) as (client, _):
        response = client.request("HEAD", "/")
        assert (response.body, response.header("Content-Length")) == (b"", "7")
        assert client.request("GET", "/").body == b"next"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nshort",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12",
    ],
    ids=["cut", "cut-chunk", "not-http", "long-head", "two-lengths"],
)
def test_an_answer_that_cannot_be_used(world: Any, answer: bytes) -> None:
    with world(answering(answer)) as (client, _), pytest.raises(Unreadable):
        client.request("GET", "/")


def test_an_answer_that_is_read_whole_is_limited(world: Any) -> None:
    with world(answering(ok(b"x" * 1000))) as (client, _), pytest.raises(TooLarge, match="larger than 999"):
        client.request("GET", "/", limit=999)


def test_no_answer_in_time(world: Any) -> None:
    def silent(line: socket.socket) -> None:
        read_request(line)
        read_head(line)  # until the client hangs up

    with world(silent) as (client, _), pytest.raises(TimedOut) as caught:
        client.request("GET", "/", timeout=0.1)
    assert isinstance(caught.value, TimeoutError)


def test_no_secret_is_told_about_a_header_that_cannot_be_sent(world: Any) -> None:
    with world() as (client, _), pytest.raises(ValueError) as caught:
        client.request("GET", "/", headers=[("Authorization", "Bearer s3cret\r\nX: y")])
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("size", [0, 10, 5_000_000])
def test_a_file_is_sent_from_its_position(world: Any, size: int) -> None:
    got: list[int] = []

    def counting(line: socket.socket) -> None:
        got.append(read_request(line)[1])
        line.sendall(ok(b"thanks"))

    with world(counting) as (client, _), tempfile.TemporaryFile() as file:
        file.write(b"skip" + b"x" * size)
        file.flush()
        file.seek(4)
        assert client.stream("PUT", "/", body=file) == (200, b"thanks")
    assert got == [size]


def test_a_file_that_is_none_of_the_kernel_is_sent_too(world: Any) -> None:
    got: list[int] = []

    def counting(line: socket.socket) -> None:
        got.append(read_request(line)[1])
        line.sendall(ok())

    with world(counting) as (client, _):
        client.stream("PUT", "/", body=io.BytesIO(b"x" * 1_000_000))
    assert got == [1_000_000]


def test_an_iterator_is_sent_in_chunks() -> None:
    def chunked(line: socket.socket) -> None:
        assert b"Transfer-Encoding: chunked" in read_head(line)
        body = b""
        while not body.endswith(b"0\r\n\r\n"):
            body += line.recv(1000)
        line.sendall(ok(body))

    with scripted(chunked, chunked) as server:
        for client, body in (
            (Blocking(server.origin), {"body": iter([b"ab", b"", b"cde"])}),
            (Waiting(server.origin), {"chunks": [b"ab", b"", b"cde"]}),
        ):
            assert client.stream("PUT", "/", **body) == (200, b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n")
            client.close()


def drain(line: socket.socket) -> None:
    """Until the client hangs up: closing with something unread would take back what was sent."""
    try:
        while line.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass


def refusing(line: socket.socket) -> None:
    """Refuses when it has seen the head, and takes the rest without a word."""
    read_head(line)
    line.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nnope")
    drain(line)


def test_an_answer_that_comes_before_the_body_is_sent_counts(world: Any) -> None:
    with world(refusing) as (client, _), tempfile.TemporaryFile() as file:
        file.truncate(1 << 30)
        file.seek(0)
        assert client.stream("PUT", "/", body=file, timeout=30) == (413, b"nope")


def test_both_sides_talk_at_once_and_nobody_waits_for_ever(world: Any) -> None:
    """A server that sends its answer while it does not read, and reads only when that was taken."""
    size = 8 << 20

    def act(line: socket.socket) -> None:
        read_head(line)
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
        drain(line)

    with world(act) as (client, _):
        status, body = client.stream("PUT", "/", body=io.BytesIO(b"y" * (32 << 20)), timeout=30)
    assert (status, len(body)) == (200, size)


def test_leaving_a_stream_early_hangs_up(world: Any) -> None:
    ended: list[bool] = []

    def endless(line: socket.socket) -> None:
        read_head(line)
        try:
            line.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                line.sendall(b"5\r\nhello\r\n")
        except OSError:
            ended.append(True)

    with world(endless) as (client, _):
        status, data = client.stream("GET", "/", take=3)
    assert (status, data) == (200, b"hel")
    assert ended == [True]


def test_a_closed_client_sends_nothing(world: Any) -> None:
    with world() as (client, _):
        if isinstance(client, Waiting):
            client.runner.run(client.http.close())
        else:
            client.http.close()
        with pytest.raises(Unreachable, match="closed"):
            client.request("GET", "/")
