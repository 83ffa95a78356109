"""Where a pull may go: by what the operator listed, from one hop to the next, and to which addresses."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.node.images.options import ImageOptions
from sandpool.node.images.reference import parse_name
from sandpool.node.images.registry_policy import (
    Origin,
    Reach,
    hop_reach,
    may_connect,
    origin_of,
    parse_entry,
    registry_reach,
    trouble,
    within,
)
from sandpool.node.network.forbidden import Address
from sandpool.node.network.route import Route

OWN = ip_address("203.0.113.7")  # stands for an address of this machine; the others are routed


def route(address: Address) -> Route:
    return Route.LOCAL if address == OWN else Route.UNICAST


@pytest.mark.parametrize(
    ("image", "listed", "reach"),
    [
        ("python:3.12", ("public",), Reach.PUBLIC),
        ("ghcr.io/team/tool", ("public",), Reach.PUBLIC),
        ("localhost:5000/tool", ("public",), Reach.NOWHERE),
        ("localhost/tool", ("public",), Reach.NOWHERE),
        ("127.64.0.1:5000/tool", ("public",), Reach.NOWHERE),
        ("[::1]:5000/tool", ("public",), Reach.NOWHERE),
        ("localhost:5000/tool", ("public", "localhost:5000"), Reach.ANYWHERE),
        ("localhost:5001/tool", ("public", "localhost:5000"), Reach.NOWHERE),
        ("127.0.0.1:5000/tool", ("localhost:5000",), Reach.NOWHERE),
        ("127.0.0.1:5001/tool", ("127.0.0.1:*",), Reach.ANYWHERE),
        ("[::1]:5001/tool", ("[::1]:*",), Reach.ANYWHERE),
        ("python:3.12", ("localhost:5000",), Reach.NOWHERE),
        ("python:3.12", ("docker.io",), Reach.OTHERS),
        ("python:3.12", ("registry-1.docker.io",), Reach.OTHERS),
        ("python:3.12", ("auth.docker.io",), Reach.NOWHERE),
        ("r.example/tool", ("r.example",), Reach.OTHERS),
        ("r.example:443/tool", ("r.example",), Reach.OTHERS),
        ("r.example:22/tool", ("r.example",), Reach.NOWHERE),
        ("r.example/team/tool", ("r.example/team",), Reach.OTHERS),
        ("r.example/teams/tool", ("r.example/team",), Reach.NOWHERE),
        ("python:3.12", (), Reach.NOWHERE),
    ],
)
def test_which_registries(image: str, listed: tuple[str, ...], reach: Reach) -> None:
    assert registry_reach(parse_name(image), ImageOptions(registries=listed)) is reach


def test_what_may_be_asked_without_tls_may_be_asked() -> None:
    options = ImageOptions(insecure_registries=("plain.example", "other.example:5000"))
    assert registry_reach(parse_name("plain.example:81/x"), options) is Reach.OTHERS
    assert origin_of(parse_name("plain.example:81/x"), options) == Origin("http", "plain.example", 81)
    assert registry_reach(parse_name("other.example:5000/x"), options) is Reach.ANYWHERE
    assert origin_of(parse_name("other.example:5001/x"), options).scheme == "https"
    assert origin_of(parse_name("python"), options) == Origin("https", "registry-1.docker.io", 443)


@pytest.mark.parametrize(
    ("image", "listed", "to", "reach"),
    [
        # A registry that nobody listed leads to the internet, and nowhere else.
        ("evil.example/x", ("public",), "https evil.example 443", Reach.PUBLIC),
        ("evil.example/x", ("public",), "https cdn.example 443", Reach.PUBLIC),
        ("evil.example/x", ("public",), "http cdn.example 80", Reach.NOWHERE),
        ("evil.example/x", ("public",), "http 127.0.0.1 80", Reach.NOWHERE),
        ("evil.example/x", ("public",), "https localhost 443", Reach.NOWHERE),
        ("evil.example/x", ("public", "localhost:5000"), "http localhost 5000", Reach.NOWHERE),
        ("evil.example/x", ("public", "localhost:5000"), "https localhost 5000", Reach.NOWHERE),
        ("evil.example/x", ("public", "inside.example"), "https inside.example 443", Reach.PUBLIC),
        # One that is listed leads to others that are.
        ("localhost:5000/x", ("localhost:5000",), "http localhost 5000", Reach.ANYWHERE),
        ("localhost:5000/x", ("localhost:5000",), "http localhost 5001", Reach.NOWHERE),
        ("localhost:5000/x", ("localhost:5000",), "http 127.0.0.1 5000", Reach.NOWHERE),
        ("localhost:5000/x", ("localhost:5000", "127.0.0.1:6000"), "http 127.0.0.1 6000", Reach.ANYWHERE),
        ("localhost:5000/x", ("localhost:5000", "127.0.0.1:6000/team"), "http 127.0.0.1 6000", Reach.NOWHERE),
        ("r.example/x", ("r.example",), "https cdn.example 443", Reach.NOWHERE),
        ("r.example/x", ("r.example", "cdn.example"), "https cdn.example 443", Reach.OTHERS),
        ("r.example/x", ("r.example", "public"), "https cdn.example 443", Reach.PUBLIC),
        ("r.example/x", ("r.example", "public"), "http r.example 80", Reach.NOWHERE),
        ("r.example/x", ("r.example", "localhost:5000"), "http localhost 5000", Reach.NOWHERE),  # from TLS to none
        ("python", ("docker.io",), "https auth.docker.io 443", Reach.PUBLIC),
        ("python", ("docker.io",), "https auth.docker.io 444", Reach.NOWHERE),
        ("r.example/x", ("r.example",), "https auth.docker.io 443", Reach.NOWHERE),
        ("r.example/x", ("r.example",), "ftp r.example 443", Reach.NOWHERE),
    ],
)
def test_which_hops(image: str, listed: tuple[str, ...], to: str, reach: Reach) -> None:
    options, name = ImageOptions(registries=listed), parse_name(image)
    scheme, host, port = to.split()
    here = origin_of(name, options)
    found = hop_reach(registry_reach(name, options), name, here, Origin(scheme, host, int(port)), options)
    assert found is reach


@pytest.mark.parametrize(
    ("address", "furthest"),
    [
        ("1.1.1.1", Reach.PUBLIC),
        ("2606:4700:4700::1111", Reach.PUBLIC),
        ("10.1.2.3", Reach.OTHERS),
        ("192.168.1.1", Reach.OTHERS),
        ("100.64.0.1", Reach.OTHERS),
        ("fd00::1", Reach.OTHERS),
        ("64:ff9b::a01:203", Reach.OTHERS),  # 10.1.2.3 behind a translator
        ("127.0.0.1", Reach.ANYWHERE),
        ("127.64.0.1", Reach.ANYWHERE),
        ("0.0.0.0", Reach.ANYWHERE),
        ("::1", Reach.ANYWHERE),
        ("::ffff:127.0.0.1", Reach.ANYWHERE),
        ("64:ff9b::7f00:1", Reach.ANYWHERE),
        ("169.254.169.254", Reach.ANYWHERE),
        ("fe80::1", Reach.ANYWHERE),
        ("224.0.0.1", Reach.ANYWHERE),
        ("203.0.113.7", Reach.ANYWHERE),  # this machine's own
    ],
)
def test_which_addresses(address: str, furthest: Reach) -> None:
    """Within the reach that is named, and not within the one before."""
    found = ip_address(address)
    assert may_connect(found, furthest, route)
    assert not any(may_connect(found, reach, route) for reach in Reach if reach < furthest)


def test_without_the_kernel_nothing_is_known() -> None:
    def broken(address: Address) -> Route:
        raise OSError

    assert not may_connect(ip_address("1.1.1.1"), Reach.PUBLIC, broken)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "a.localhost", "127.1", "2130706433", "0x7f.1", "0x7f000001", "::1", "169.254.169.254"],
)
def test_hosts_that_a_proxy_is_not_asked_for(host: str) -> None:
    assert not within(host, Reach.PUBLIC)
    assert not within(host, Reach.OTHERS)
    assert within(host, Reach.ANYWHERE)
    assert within("registry.example", Reach.PUBLIC)


@pytest.mark.parametrize(
    "text", ["", ":5000", "a:b", "r.example:0", "r.example:70000", "http://r.example", "a:1:*", "[::"]
)
def test_entries_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="HOST"):
        parse_entry(text)
    assert trouble(("public", text)).startswith(repr(text))


@given(st.text(max_size=40))
def test_any_entry_is_survived(text: str) -> None:
    trouble((text,))
