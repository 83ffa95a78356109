"""Heads are read in one way only, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.router.head import ONCE, parse_request, parse_response
from sandpool.wire.http_head import BadHead


def request(*lines: str, first: str = "GET / HTTP/1.1", host: bool = True) -> bytes:
    return "".join(f"{line}\r\n" for line in (first, *(["Host: h"] if host else []), *lines)).encode("latin-1")


def response(*lines: str, first: str = "HTTP/1.1 200 OK") -> bytes:
    return "".join(f"{line}\r\n" for line in (first, *lines)).encode("latin-1")


def test_an_ordinary_request() -> None:
    head = parse_request(request("X-Thing:  a b \t", "Content-Length: 12", first="PUT /a%20b/../c?d=%2F HTTP/1.1"))
    assert (head.method, head.path, head.minor) == (b"PUT", b"/a%20b/../c?d=%2F", 1)
    assert head.headers == ((b"host", b"h"), (b"x-thing", b"a b"), (b"content-length", b"12"))
    assert (head.length, head.chunked, head.keep, head.upgrade, head.expects) == (12, False, True, b"", False)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PATCH", "PROPFIND", "M-SEARCH", "purge"])
def test_every_method_passes(method: str) -> None:
    assert parse_request(request(first=f"{method} / HTTP/1.1")).method == method.encode()


@pytest.mark.parametrize(
    "first",
    [
        "GET  / HTTP/1.1", "GET / HTTP/1.1 ", " GET / HTTP/1.1", "GET /\tx HTTP/1.1", "GET / HTTP/2.0", "GET / HTTP/1.2", "GET /",
        "GET http://elsewhere/ HTTP/1.1", "CONNECT elsewhere:443 HTTP/1.1", "OPTIONS * HTTP/1.1", "GET / http/1.1", "", "GET /\x00 HTTP/1.1",
        "GET /\x80 HTTP/1.1", "GET /#x HTTP/1.1", "G(T / HTTP/1.1", "GET /\rX HTTP/1.1", "GET /\nX: y HTTP/1.1", "GET / HTTP/1.1\r",
        "A" * 33 + " / HTTP/1.1", "GET /" + "a" * 16384 + " HTTP/1.1", "PRI * HTTP/2.0",
    ],
)  # fmt: skip
def test_other_first_lines_are_refused(first: str) -> None:
    with pytest.raises(BadHead):
        parse_request(request(first=first))


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Content-Length: 5", "Content-Length: 5"],
        ["Content-Length: 5", "content-length: 6"],
        ["Content-Length: 5, 5"],
        ["Content-Length: +5"], ["Content-Length: -1"], ["Content-Length: 0x5"], ["Content-Length: 5 5"], ["Content-Length: "],
        ["Content-Length: 5_0"], ["Content-Length: \xb2"], ["Content-Length: 1000000000000000000"],
        ["Content-Length : 5"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked, chunked"], ["Transfer-Encoding: identity"], ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: xchunked"], ["Transfer-Encoding: \x0bchunked"], ["Transfer-Encoding:\r\n chunked"], ["Transfer-Encoding: "],
        ["X: a", " folded"], ["X: a", "\tfolded"], ["X : a"], [": a"], ["X"], ["X: a\x00"], ["X: a\x7f"], ["X: a\rY: b"], ["X: a\nY: b"],
        ["X\x00: a"], ["\xe4: a"], ["X y: a"], [""],
        ["Expect: something"],
    ],
    ids=repr,
)  # fmt: skip
def test_what_could_be_read_in_two_ways_is_refused(lines: list[str]) -> None:
    with pytest.raises(BadHead):
        parse_request(request(*lines))


@pytest.mark.parametrize("name", sorted(ONCE - {b"expect", b"transfer-encoding", b"content-length"}))
def test_what_decides_something_comes_once(name: bytes) -> None:
    line = f"{name.decode().title()}: 1"
    assert parse_request(request(line, host=name != b"host"))
    with pytest.raises(BadHead, match="twice"):
        parse_request(request(line, line.lower(), host=name != b"host"))


def test_the_names_that_route_are_among_those() -> None:
    assert {
        b"x-sandbox-id",
        b"x-sandbox-namespace",
        b"x-sandbox-port",
        b"x-sandbox-uid",
        b"host",
        b"authorization",
    } <= ONCE


def test_a_host_is_needed() -> None:
    with pytest.raises(BadHead, match="Host"):
        parse_request(request(host=False))
    assert not parse_request(request(host=False, first="GET / HTTP/1.0")).keep


def test_old_clients_send_no_chunks() -> None:
    with pytest.raises(BadHead):
        parse_request(request("Transfer-Encoding: chunked", first="POST / HTTP/1.0"))


def test_headers_are_counted() -> None:
    lines = [f"X-{number}: y" for number in range(20)]
    assert len(parse_request(request(*lines), most_headers=21).headers) == 21
    with pytest.raises(BadHead) as refused:
        parse_request(request(*lines), most_headers=20)
    assert refused.value.status == 431


def test_an_upgrade_needs_both_headers_and_no_body() -> None:
    assert parse_request(request("Connection: keep-alive, Upgrade", "Upgrade: WebSocket")).upgrade == b"websocket"
    assert parse_request(request("Upgrade: websocket")).upgrade == b""
    for body in ("Content-Length: 1", "Transfer-Encoding: chunked"):
        assert parse_request(request("Connection: upgrade", "Upgrade: websocket", body)).upgrade == b""
    assert parse_request(request("Connection: upgrade", "Upgrade: x", first="GET / HTTP/1.0")).upgrade == b""


def test_connection_headers() -> None:
    head = parse_request(request("Connection: X-One, close", "connection: x-two"))
    assert not head.keep
    assert {b"x-one", b"x-two"} <= head.nominated


def test_a_response() -> None:
    head = parse_response(
        response("Content-Length: 3", "Set-Cookie: a", "Set-Cookie: b", first="HTTP/1.1 404 Not \xe4")
    )
    assert (head.status, head.reason, head.length, head.keep) == (404, b"Not \xe4", 3, True)
    assert parse_response(response(first="HTTP/1.1 200")).reason == b""
    assert not parse_response(response(first="HTTP/1.0 200 OK")).keep
    assert parse_response(response("Connection: keep-alive", first="HTTP/1.0 200 OK")).keep


@pytest.mark.parametrize(
    "first", ["HTTP/1.1 099 x", "HTTP/1.1 600 x", "HTTP/1.1 2000", "HTTP/2 200", "ICY 200 OK", "HTTP/1.1  200 OK", ""]
)
def test_other_status_lines_are_refused(first: str) -> None:
    with pytest.raises(BadHead):
        parse_response(response(first=first))


@pytest.mark.parametrize(
    "lines",
    [["Content-Length: 1", "Transfer-Encoding: chunked"], ["Content-Length: 1", "Content-Length: 1"], ["X: a", " b"], ["X: \x01"]],
)  # fmt: skip
def test_responses_are_read_as_strictly(lines: list[str]) -> None:
    with pytest.raises(BadHead):
        parse_response(response(*lines))


PIECES = st.sampled_from(
    [b"GET", b" ", b"/", b"HTTP/1.1", b"\r\n", b"\n", b"\r", b"Host", b":", b"a", b"Content-Length", b"5", b",", b"Transfer-Encoding",
     b"chunked", b"\t", b"\x00", b"\xff", b"Connection", b"Upgrade", b"HTTP/1.1 200 OK"]
)  # fmt: skip


@given(st.lists(PIECES | st.binary(max_size=4), max_size=40).map(b"".join))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for parse in (parse_request, parse_response):
        try:
            head = parse(data)
        except BadHead:
            continue
        for name, value in head.headers:
            assert not set(name) & set(b"\r\n: \t\x00")
            assert not set(value) & set(b"\r\n\x00")
        assert not (head.chunked and head.length is not None)


@given(
    st.lists(
        st.tuples(st.from_regex(rb"x-[A-Za-z0-9-]{1,10}", fullmatch=True), st.text("ab \t;,:=", max_size=20)),
        max_size=20,
    )
)
def test_what_is_written_down_is_read_back(fields: list[tuple[bytes, str]]) -> None:
    block = b"".join(name + b": " + value.encode() + b"\r\n" for name, value in fields if name.lower() not in ONCE)
    wanted = [(name.lower(), value.strip(" \t").encode()) for name, value in fields if name.lower() not in ONCE]
    assert list(parse_request(b"GET / HTTP/1.1\r\nHost: h\r\n" + block).headers[1:]) == wanted
