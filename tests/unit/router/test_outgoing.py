"""What the sandbox gets of a request, and what the client gets of a response."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from sandpool.model.metadata import Uid
from sandpool.router.answers import encoded, problem
from sandpool.router.head import parse_request, parse_response
from sandpool.router.outgoing import completed, mark_of, request_head, response_head
from sandpool.router.ports import Target
from sandpool.router.values import Admitted, Answer, Peer, Request
from sandpool.wire.headers import ROUTING


async def nowhere() -> socket.socket:
    raise AssertionError("nobody connects here")


ADMITTED = Admitted(Target("default", "box", Uid("u"), "box", "10.0.0.1"), "me", b"/inside?q", nowhere, "pool")


DROPPING = replace(ADMITTED, drop=frozenset(name.encode() for name in ROUTING))


def sent(data: bytes, admitted: Admitted = ADMITTED, peer: Peer = Peer("10.1.1.1"), upgrade: bytes = b"") -> list[str]:
    head = parse_request(data)
    request = Request(head.method, head.path, head.headers, "id-1")
    out = request_head(head, request, peer, admitted, upgrade)
    assert out.endswith(b"\r\n\r\n")
    assert parse_request(out[:-2])  # what goes out is as strict as what comes in
    return out.decode().split("\r\n")[:-2]


def test_a_request_on_its_way() -> None:
    data = (
        b"POST /outside HTTP/1.1\r\nHost: router.example\r\nAuthorization: Bearer secret\r\nX-Sandbox-ID: box\r\n"
        b"X-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Forwarded-Proto: https\r\nTE: trailers\r\nKeep-Alive: 5\r\n"
        b"Connection: X-Mine, Content-Length\r\nX-Mine: 1\r\nContent-Length: 3\r\nCookie: a=b\r\nX-Request-ID: other\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: x\r\nProxy-Authorization: Basic eA==\r\n"
    )
    admitted = replace(ADMITTED, drop=frozenset({b"x-sandbox-id"}), add=((b"authorization", b"Bearer inner"),))
    assert sent(data, admitted) == [
        "POST /inside?q HTTP/1.1",
        "host: localhost",
        "cookie: a=b",
        "authorization: Bearer inner",
        "x-forwarded-host: router.example",
        "x-forwarded-for: 10.1.1.1",
        "x-forwarded-proto: http",
        "x-request-id: id-1",
        "content-length: 3",
    ]


def test_a_port_and_a_secure_client() -> None:
    lines = sent(b"GET / HTTP/1.1\r\nHost: h\r\n", replace(ADMITTED, port=8080), Peer("::1", secure=True))
    assert "host: localhost:8080" in lines
    assert "x-forwarded-proto: https" in lines
    assert (
        sent(b"GET / HTTP/1.1\r\nHost: h\r\n", replace(ADMITTED, add=((b"host", b"app.test"),))).count("host: app.test")
        == 1
    )


@pytest.mark.parametrize(
    ("address", "told"), [("10.1.1.1", True), ("::1", True), ("fe80::1%eth0", True), ("port-forward", False)]
)
def test_only_addresses_are_told(address: str, told: bool) -> None:
    lines = sent(b"GET / HTTP/1.1\r\nHost: h\r\n", peer=Peer(address))
    assert (f"x-forwarded-for: {address}" in lines) == told


def test_cookies_of_others_stay_outside() -> None:
    admitted = replace(ADMITTED, prefix=b"/port/T")
    mine = mark_of(b"/port/T").decode()
    assert "cookie: a=b" in sent(f"GET / HTTP/1.1\r\nHost: h\r\nCookie: x=y; {mine}a=b\r\n".encode(), admitted)
    assert not [line for line in sent(b"GET / HTTP/1.1\r\nHost: h\r\nCookie: x=y\r\n", admitted) if "cookie" in line]
    response = parse_response(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\n")
    out = response_head(response, Request(b"GET", b"/", (), "id"), admitted, ())
    assert f"set-cookie: {mine}a=b; Path=/port/T/".encode() in out


def test_lengths_are_written_anew() -> None:
    assert "transfer-encoding: chunked" in sent(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n")
    assert "content-length: 7" in sent(
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 007\r\nConnection: content-length\r\n"
    )
    assert "expect: 100-continue" in sent(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\nExpect: 100-Continue\r\n")


def test_an_upgrade_is_passed_on() -> None:
    lines = sent(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n", upgrade=b"websocket")
    assert lines[-2:] == ["connection: upgrade", "upgrade: websocket"]


def test_a_response_on_its_way() -> None:
    data = (
        b"HTTP/1.1 302 Found\r\nLocation: /login\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX-Two: a\r\nX-Two: b\r\n"
        b"Alt-Svc: h3\r\nStrict-Transport-Security: max-age=1\r\nX-Request-ID: fake\r\nTransfer-Encoding: chunked\r\n"
    )
    request = Request(b"GET", b"/", ((b"host", b"h"),), "id-1")
    out = response_head(parse_response(data), request, replace(ADMITTED, prefix=b"/port/T"), ((b"x", b"y"),))
    assert out == (
        b"HTTP/1.1 302 Found\r\nlocation: /port/T/login\r\nx-two: a\r\nx-two: b\r\nx: y\r\nx-request-id: id-1\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("location", "wanted"),
    [
        ("/a?b#c", "/p/a?b#c"), ("a/b", "a/b"), ("../x", "../x"), ("?q", "?q"), ("", ""), ("//other/x", "//other/x"), ("/\\other", "/\\other"),
        ("http://me:80/x", "/p/x"), ("HTTP://me:80", "/p/"), ("https://me:80/x", "/p/x"), ("http://other/x", "http://other/x"),
        ("ftp://me:80/", "ftp://me:80/"), ("http://me:80@evil/x", "http://me:80@evil/x"),
    ],
)  # fmt: skip
def test_redirects(location: str, wanted: str) -> None:
    assert completed(location.encode(), b"/p/", frozenset({b"me:80"})) == wanted.encode()


def test_answers() -> None:
    answer = Answer(403, {"detail": "no"}, ((b"www-authenticate", b"Bearer"),))
    head, _, body = encoded(answer, close=True, id="x").partition(b"\r\n\r\n")
    assert body == b'{"detail": "no"}'
    assert b"HTTP/1.1 403 Forbidden\r\nwww-authenticate: Bearer\r\n" in head
    assert head.endswith(b"content-length: 16\r\nx-request-id: x\r\nconnection: close")
    assert encoded(answer, bare=True).endswith(b"content-length: 16\r\n\r\n")
    assert b"content-length" not in encoded(Answer(204, {}))
    assert set(problem(502, "why").body) == {"detail", "code", "message"}


def test_which_run_of_the_daemon_is_carried_both_ways() -> None:
    asked = sent(b"GET / HTTP/1.1\r\nHost: router.example\r\nX-Sandbox-Incarnation: 1.000-ab\r\n", DROPPING)
    assert "x-sandbox-incarnation: 1.000-ab" in asked
    response = parse_response(b"HTTP/1.1 412 Precondition Failed\r\nX-Sandbox-Incarnation: 2.000-cd\r\n")
    told = response_head(response, Request(b"GET", b"/", (), "id-1"), ADMITTED, ())
    assert b"\r\nx-sandbox-incarnation: 2.000-cd\r\n" in told
