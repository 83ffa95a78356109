"""What the proxy understands, and everything else that it refuses."""

from __future__ import annotations

import contextlib
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.node.network.egress import messages
from sandpool.node.network.egress.http1 import MAX_HEADERS, Refusal
from sandpool.node.network.egress.messages import Request, parse_request


def ask(target: str, *headers: str, method: str = "GET", version: str = "HTTP/1.1") -> Request:
    return parse_request("\r\n".join((f"{method} {target} {version}", *headers)).encode("latin-1"))


def connect(target: str, *headers: str) -> Request:
    return ask(target, *headers, method="CONNECT")


def test_a_forward_request() -> None:
    found = ask("http://Example.com:8080/a/b?c=d", "Host: other.example", "Accept: */*")
    assert (found.host, found.port, found.path, found.address) == ("example.com", 8080, "/a/b?c=d", None)
    assert not found.tunnel


def test_a_tunnel() -> None:
    found = connect("example.com:22")
    assert (found.host, found.port, found.tunnel) == ("example.com", 22, True)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://a", "/"),
        ("http://a/", "/"),
        ("http://a?b", "/?b"),
        ("http://a:/b", "/b"),
        ("HTTP://a/b//c/../d", "/b//c/../d"),
    ],
)
def test_paths_are_passed_on_as_they_are(target: str, path: str) -> None:
    found = ask(target)
    assert (found.port, found.path) == (80, path)


def test_options_of_a_whole_server() -> None:
    assert ask("http://a", method="OPTIONS").path == "*"


@pytest.mark.parametrize(
    ("host", "address"),
    [
        *(("127.0.0.1", "127.0.0.1"), ("127.1", "127.0.0.1"), ("2130706433", "127.0.0.1"), ("0x7f000001", "127.0.0.1")),
        *(("017700000001", "127.0.0.1"), ("0x7f.1", "127.0.0.1"), ("0177.0.0.01", "127.0.0.1"), ("0", "0.0.0.0")),
        *(("0xA9.0xFE.0xA9.0xFE", "169.254.169.254"), ("127.0.0.1.", "127.0.0.1"), ("1.1.257", "1.1.1.1")),
        *(("[::1]", "::1"), ("[::ffff:127.0.0.1]", "::ffff:127.0.0.1"), ("[0:0:0:0:0:0:0:1]", "::1"), ("[::]", "::")),
        ("[::ffff:7f00:1]", "::ffff:127.0.0.1"),
    ],
)
def test_an_address_in_any_spelling_is_that_address(host: str, address: str) -> None:
    for found in (ask(f"http://{host}/"), connect(f"{host}:80")):
        assert found.address == ip_address(address)


@pytest.mark.parametrize(
    "host", ["a.b1", "1a", "0x7g.com", "xn--bcher-kva.example", "under_score.example", "a.", "localhost"]
)
def test_names_are_left_to_the_resolver(host: str) -> None:
    assert ask(f"http://{host}/").address is None


@pytest.mark.parametrize(
    "target",
    [
        *("/", "*", "example.com", "//example.com/", "https://example.com/", "ftp://example.com/", "file:///etc/passwd"),
        *("http:///", "http://", "http://a:0/", "http://a:65536/", "http://a:99999/", "http://a:-1/", "http://a:+80/"),
        *("http://a:80:80/", "http://user@a/", "http://user:pass@a/", "http://a/#b", "http://a b/", "http://[::1/"),
        *("http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/", "http://%31.1/", "http://a%2fb/", "http://[1.2.3.4]/"),
        *("http://256.1.1.1/", "http://1.2.3.4.5/", "http://0x100000000/", "http://4294967296/", "http://1.2.3.08/"),
        *("http://a..b/", "http://.a/", "http://./", "http://" + "a" * 64 + "/", "http://" + "a." * 127 + "a/", "http://é/"),
        *("http://a\\b/", "http://a;b/", "http://[::1]x/", "http://::1/", "http://[]/", "http://a/\x7f", "http://a/\x00"),
    ],
)  # fmt: skip
def test_targets_that_are_refused(target: str) -> None:
    with pytest.raises(Refusal) as refused:
        ask(target)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "target", ["example.com", "example.com:", "http://a/", "/", "*", "a:b", "u@a:1", "[::1]", "a:1/", ""]
)
def test_tunnels_that_are_refused(target: str) -> None:
    with pytest.raises(Refusal):
        connect(target)


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 1", "Content-Length: 1"),
        ("Content-Length: 1, 1",),
        ("Content-Length: +1",),
        ("Content-Length: -1",),
        ("Content-Length: 0x1",),
        ("Content-Length:",),
        ("Content-Length: " + "9" * 19,),
        ("Content-Length: 1", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding : chunked",),
        ("Host: a", "Host: b"),
        ("No colon",),
        (": empty",),
        ("Folded: a", " b"),
        ("Bad\x00Name: a",),
        ("Value: a\x00b",),
        ("Value: a\rb",),
        ("Value: a\nHost: b",),
        ("Näme: a",),
    ],
)
def test_heads_that_two_could_read_in_two_ways_are_refused(headers: tuple[str, ...]) -> None:
    with pytest.raises(Refusal) as refused:
        ask("http://a/", *headers, method="POST")
    assert refused.value.status == 400


def test_a_chunked_body_needs_a_version_that_has_it() -> None:
    with pytest.raises(Refusal):
        ask("http://a/", "Transfer-Encoding: chunked", version="HTTP/1.0")


@pytest.mark.parametrize("header", ["Content-Length: 5", "Content-Length: 0", "Transfer-Encoding: chunked"])
def test_a_tunnel_has_no_body(header: str) -> None:
    with pytest.raises(Refusal):
        connect("a:1", header)


@pytest.mark.parametrize("version", ["HTTP/2.0", "HTTP/0.9", "HTTP/1.2"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(Refusal) as refused:
        ask("http://a/", version=version)
    assert refused.value.status == 505


@pytest.mark.parametrize(
    "line", [b"", b"GET", b"GET http://a/", b"GET  http://a/ HTTP/1.1", b" GET http://a/ HTTP/1.1", b"\x16\x03\x01"]
)
def test_first_lines_that_are_none(line: bytes) -> None:
    with pytest.raises(Refusal):
        parse_request(line)


def test_the_number_of_headers_has_a_limit() -> None:
    ask("http://a/", *(f"H{index}: v" for index in range(MAX_HEADERS)))
    with pytest.raises(Refusal):
        ask("http://a/", *(f"H{index}: v" for index in range(MAX_HEADERS + 1)))


def test_what_the_origin_gets() -> None:
    found = ask(
        "http://a:8080/x", "Host: liar", "Connection: keep-alive, X-Secret, Content-Length", "X-Secret: 1", "Keep-Alive: 5",
        "Proxy-Connection: keep-alive", "Proxy-Authorization: Basic eA==", "TE: trailers", "Upgrade: h2c",
        "HTTP2-Settings: x", "Accept:   a b  ", "Content-Length: 3", method="POST",
    )  # fmt: skip
    assert found.onward().split(b"\r\n") == [
        b"POST /x HTTP/1.1",
        b"host: a:8080",
        b"accept: a b",
        b"content-length: 3",
        b"connection: close",
        b"",
        b"",
    ]


def test_an_address_goes_on_as_what_was_judged() -> None:
    assert b"host: 127.0.0.1\r\n" in ask("http://0x7f.1/", "Host: 0x7f.1").onward()
    assert b"host: [::1]:81\r\n" in ask("http://[0::1]:81/").onward()


def test_an_answer_goes_on_without_what_is_for_one_hop() -> None:
    found = messages.parse_response(
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive, x\r\nX: 1\r\nSet-Cookie: a\r\nContent-Length: 1"
    )
    assert found.onward() == b"HTTP/1.1 200 OK\r\nset-cookie: a\r\ncontent-length: 1\r\nconnection: close\r\n\r\n"
    early = messages.parse_response(b"HTTP/1.1 103 Early Hints\r\nLink: </a>")
    assert early.interim
    assert early.onward() == b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"


@pytest.mark.parametrize(
    "line", [b"", b"ICY 200 OK", b"HTTP/2 200", b"HTTP/1.1 2000", b"HTTP/1.1 101 Switching", b"HTTP/1.1 20"]
)
def test_answers_that_are_none(line: bytes) -> None:
    with pytest.raises(Refusal):
        messages.parse_response(line)


hosts = st.from_regex(r"\A(\[[0-9a-f:.]{2,20}\]|[A-Za-z0-9._-]{1,20})\Z")
targets = st.one_of(
    st.builds("http://{}{}{}".format, hosts, st.sampled_from(["", ":1", ":80"]), st.text(max_size=10)),
    st.text(max_size=40),
)
lines = st.builds(
    "{} {} {}".format, st.sampled_from(["GET", "CONNECT", "P"]), targets, st.sampled_from(["HTTP/1.1", "HTTP/1.0"])
)


@given(lines, st.lists(st.text(max_size=30), max_size=5))
def test_whatever_is_accepted_can_be_read_again_in_only_one_way(line: str, headers: list[str]) -> None:
    """What goes on is one head, with one Host, and reads back as the same request to the same place."""
    try:
        found = parse_request("\r\n".join((line, *headers)).encode("utf-8", "surrogatepass"))
    except Refusal:
        return
    assert 0 < found.port < 65536
    if found.tunnel:
        return
    onward = found.onward()
    assert onward.count(b"\r\n\r\n") == 1
    assert onward.endswith(b"\r\n\r\n")
    first, *rest = onward.removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert all(b"\r" not in each and b"\n" not in each for each in (first, *rest))
    assert [each for each in rest if each.startswith(b"host:")] == [f"host: {found.authority}".encode()]
    method, path, version = first.split(b" ")
    again = parse_request(
        b"\r\n".join(
            (b"%b http://%b%b %b" % (method, found.authority.encode(), path if path != b"*" else b"", version), *rest)
        )
    )
    assert (again.host, again.port, again.address, again.length) == (
        found.host,
        found.port,
        found.address,
        found.length,
    )


@given(st.binary(max_size=300))
def test_garbage_is_refused_and_nothing_else_happens(data: bytes) -> None:
    with contextlib.suppress(Refusal):
        parse_request(data)
    with contextlib.suppress(Refusal):
        messages.parse_response(data)
