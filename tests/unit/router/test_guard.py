"""Which Host and which Origin may speak to a router on this machine."""

from __future__ import annotations

import pytest

from sandpool.router.guard import Allowed, foreign, forwarded, from_browser, loopback, well_formed
from support.network.gate_parts import a_request

ALLOWED = Allowed(hosts=frozenset({"box.example.com", "other.example.com:8443"}), origins=frozenset({"https://ide.example.com"}))  # fmt: skip


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:7000", True),
        ("127.8.9.1:7000", True),
        ("[::1]:7000", True),
        ("[::ffff:127.0.0.1]:7000", True),
        ("LocalHost:7000", True),
        ("a.localhost:7000", True),
        ("box.example.com", True),
        ("box.example.com:1", True),
        ("other.example.com:8443", True),
        ("other.example.com", False),
        ("", False),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("evil-localhost", False),
        ("127.0.0.1.evil.example", False),
        ("127.0.0.1:70000000", False),
        ("127.0.0.1:", False),
        ("127.0.0.1 evil", False),
        ("evil@127.0.0.1", False),
        ("127.0.0.1/evil", False),
        ("10.0.0.1:7000", False),
        ("0.0.0.0:7000", False),
        ("[::1", False),
        ("::1", False),
    ],
)
def test_hosts(host: str, ours: bool) -> None:
    refusal = foreign(a_request("/", {"host": host}), ALLOWED, secure=False)
    assert (refusal is None) == ours
    if refusal is not None:
        assert (refusal.status, refusal.word) == (403, "FOREIGN_HOST")
        assert "--allowed-host" in refusal.message


def test_without_a_host_nobody_is_answered() -> None:
    assert foreign(a_request("/", {}), ALLOWED, secure=False) is not None


@pytest.mark.parametrize(
    ("origin", "secure", "ours"),
    [
        ("http://localhost:7000", False, True),
        ("HTTP://LOCALHOST:7000", False, True),
        ("https://localhost:7000", True, True),
        ("https://ide.example.com", False, True),
        ("http://localhost:7000", True, False),
        ("http://localhost:7001", False, False),  # another server on this machine may be a sandbox's
        ("http://localhost", False, False),
        ("http://127.0.0.1:7000", False, False),
        ("http://evil.example", False, False),
        ("http://ide.example.com", False, False),
        ("null", False, False),
        ("", False, False),
        ("http://localhost:7000/", False, False),
        ("http://localhost:7000@evil.example", False, False),
        ("http://[", False, False),
        ("file://", False, False),
    ],
)
def test_origins(origin: str, secure: bool, ours: bool) -> None:
    refusal = foreign(a_request("/", {"host": "localhost:7000", "origin": origin}), ALLOWED, secure=secure)
    assert (refusal is None) == ours
    if refusal is not None:
        assert "--allowed-origin" in refusal.message


@pytest.mark.parametrize("header", ["origin", "sec-fetch-site", "referer"])
def test_what_a_browser_sends_is_seen(header: str) -> None:
    assert from_browser(a_request("/", {header: "x"}))
    assert not from_browser(a_request("/", {"user-agent": "node", "sec-fetch-mode": "cors"}))


def test_addresses_of_this_machine() -> None:
    assert all(loopback(one) for one in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"))
    assert not any(loopback(one) for one in ("", "10.0.0.1", "::", "0.0.0.0", "localhost", "fe80::1%lo"))


def test_a_kubelet_connects_from_one_address_and_a_mesh_from_others() -> None:
    assert all(forwarded(one) for one in ("127.0.0.1", "::1", "::ffff:127.0.0.1"))
    assert not any(forwarded(one) for one in ("127.0.0.6", "10.0.0.1", "", "port-forward"))


def test_a_host_that_can_stand_in_an_address() -> None:
    assert well_formed("a.example:80")
    assert not any(well_formed(one) for one in ("", 'a"', "a b", "a/b", "a@b", "a:b"))
