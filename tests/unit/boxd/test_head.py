"""Request heads: what is read, and what two readers could read differently is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.boxd.http.head import Head, parse
from sandpool.wire.codes import Refused


def head(*lines: str) -> Head:
    return parse(("\r\n".join(lines) + "\r\n\r\n").encode())


def test_a_plain_request() -> None:
    read = head("PUT /a%20b/%2e%2e?x=1&y HTTP/1.1", "Host: h", "Content-Length: 12", "X-Y:  z ")
    assert (read.method, read.path, read.query, read.length, read.close) == (
        "PUT",
        "/a b/..",
        {"x": "1", "y": ""},
        12,
        False,
    )
    assert read.headers["x-y"] == "z"


@pytest.mark.parametrize(
    "lines",
    [
        ("GET / HTTP/2.0",),
        ("get / HTTP/1.1",),
        ("GET  / HTTP/1.1",),
        ("GET http://h/ HTTP/1.1",),
        ("GET / HTTP/1.1", "Content-Length: 1", "Content-Length: 1"),
        ("GET / HTTP/1.1", "Content-Length: 1", "Transfer-Encoding: chunked"),
        ("GET / HTTP/1.1", "Transfer-Encoding: gzip, chunked"),
        ("GET / HTTP/1.1", "Content-Length: -1"),
        ("GET / HTTP/1.1", "Content-Length: 1e3"),
        ("GET / HTTP/1.1", "Content-Length: \u0661"),
        ("GET / HTTP/1.1", "no colon"),
        ("GET / HTTP/1.1", "Space : before"),
        ("GET / HTTP/1.1", " folded: line"),
        ("GET / HTTP/1.1", "Authorization: a", "Authorization: b"),
        ("GET / HTTP/1.1", *(f"a{n}: b" for n in range(300))),
    ],
)
def test_what_is_ambiguous_is_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(Refused):
        head(*lines)


@given(st.binary(max_size=300))
def test_garbage_is_refused_and_nothing_else(data: bytes) -> None:
    try:
        parse(data + b"\r\n\r\n")
    except Refused:
        pass


@pytest.mark.parametrize(("text", "said"), [("?a", True), ("?a=1", True), ("?a=false", False), ("", False)])
def test_flags(text: str, said: bool) -> None:
    assert head(f"GET /{text} HTTP/1.1").flag("a") is said


def test_an_upgrade_needs_both_headers() -> None:
    assert head("GET / HTTP/1.1", "Upgrade: websocket", "Connection: keep-alive, Upgrade").upgrade == "websocket"
    assert head("GET / HTTP/1.1", "Upgrade: websocket").upgrade == ""
