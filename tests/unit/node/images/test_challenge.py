"""What a registry may ask for, and who may see a password."""

from __future__ import annotations

import contextlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.node.images.challenge import Basic, Bearer, challenges, may_see_credentials, realm_trouble
from sandpool.node.images.image import Unauthorized
from sandpool.node.images.registry import token_of


@pytest.mark.parametrize(
    ("header", "meant"),
    [
        ('Basic realm="x"', (Basic(),)),
        ("Basic", (Basic(),)),
        (
            'Bearer realm="https://auth.example/token",service="r.example",scope="repository:a/b:pull,push"',
            (Bearer("https://auth.example/token", "r.example", "repository:a/b:pull,push"),),
        ),
        ("bearer realm=https://a.example/t", (Bearer("https://a.example/t"),)),
        ('Bearer realm="https://a.example/\\"t"', (Bearer('https://a.example/"t'),)),
        ('Negotiate, Basic realm="x", Bearer realm="https://a"', (Basic(), Bearer("https://a"))),
        ("Bearer", ()),
        ('Bearer service="x"', ()),
        ("", ()),
        (", , =", ()),
        ('Bearer realm="unended', ()),
    ],
)
def test_challenges(header: str, meant: object) -> None:
    assert challenges([header]) == meant


@given(st.lists(st.text(max_size=60), max_size=3))
def test_any_header_is_survived(headers: list[str]) -> None:
    challenges(headers)


def test_a_hostile_header_costs_little() -> None:
    challenges(['Bearer a="' + '\\"' * 50_000, "Basic " * 50_000, "a=b," * 50_000])


@pytest.mark.parametrize(
    ("realm", "fine"),
    [
        ("https://auth.example/token", True),
        ("http://127.0.0.1:5001/token", True),  # whether it may be asked is for registry_policy.py to say
        ("https://user:pass@auth.example/", False),
        ("ftp://auth.example/", False),
        ("file:///etc/passwd", False),
        ("/token", False),
        ("https://", False),
        ("https://[::1", False),
        ("", False),
    ],
)
def test_which_token_services_are_understood(realm: str, fine: bool) -> None:
    assert (realm_trouble(realm) == "") == fine


@pytest.mark.parametrize(
    ("host", "registry", "fine"),
    [
        ("auth.docker.io", "docker.io", True),
        ("evil.io", "docker.io", False),
        ("docker.io.evil.io", "docker.io", False),
        ("r.example.com", "r.example.com:5000", True),
        ("gitlab.com", "registry.gitlab.com", True),
        ("auth.gitlab.com", "registry.gitlab.com", True),
        ("gitlab.com.evil.io", "registry.gitlab.com", False),
        ("evilgitlab.com", "registry.gitlab.com", False),
        ("ghcr.io", "ghcr.io", True),
        ("token.ghcr.io", "ghcr.io", True),
        ("other.io", "ghcr.io", False),
        ("127.0.0.2", "127.0.0.1:5000", False),
        ("127.0.0.1", "127.0.0.1:5000", True),
        ("1.0.0.1", "127.0.0.1:5000", False),
        ("::1", "[::1]:5000", True),
        ("::2", "[::1]:5000", False),
        ("com", "example.com", False),
        ("other", "registry", False),
        ("listed.example", "r.example.com", True),
    ],
)
def test_who_sees_a_password(host: str, registry: str, fine: bool) -> None:
    assert may_see_credentials(host, registry, ("listed.example",)) == fine


@pytest.mark.parametrize(
    ("answer", "token"),
    [
        (b'{"token": "a"}', "a"),
        (b'{"token": "", "access_token": "b"}', "b"),
        (b'{"x": [' + b"{}," * 300_000 + b'{}], "token": "c"}', "c"),
        (b'{"x": ' + b"[" * 100_000, ""),
        (b'{"token": 7}', ""),
        (b'{"token": "a\\nb"}', ""),
        (b"[]", ""),
        (None, ""),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_a_token_service_says(answer: bytes | None, token: str) -> None:
    tracemalloc.start()
    try:
        with contextlib.nullcontext() if token else pytest.raises(Unauthorized):
            assert token_of(answer) == token
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_spaces_are_divided_in_one_way_only() -> None:
    """One header took a third of a second of the event loop, and a registry may send a hundred."""
    for _ in range(400):
        assert challenges(["Basic x=1" + " " * 8000 + '"'] * 16) == (Basic(),) * 16


def test_of_many_headers_the_first_are_read() -> None:
    assert len(challenges(["Basic"] * 1000)) <= 16
    assert len(challenges([",".join(["Basic"] * 1000)])) <= 17
