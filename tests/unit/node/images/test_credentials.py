"""Logins from Secrets, and which of them an image gets."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.node.images import credentials
from sandpool.node.images.credentials import MOST_TRIES, from_docker_config, from_secret, matching
from sandpool.node.images.image import Credential
from sandpool.node.images.reference import parse_name


def packed(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def test_both_kinds_of_secrets() -> None:
    entry = {"auth": packed("u", "p:q")}
    new = {".dockerconfigjson": json.dumps({"auths": {"r.example": entry}}).encode()}
    old = {".dockercfg": json.dumps({"r.example": entry}).encode()}
    assert from_secret(new) == from_secret(old) == (Credential("r.example", "u", "p:q"),)


def test_plain_fields_and_padding() -> None:
    content = json.dumps(
        {"auths": {"a.example": {"username": "u", "password": "p"}, "b.example": {"auth": packed("u", "p\0\0")}}}
    )
    assert from_docker_config(content.encode()) == (
        Credential("a.example", "u", "p"),
        Credential("b.example", "u", "p"),
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"auths": []}', b'{"auths": {"r": 1}}', b'{"auths": {"r": {"auth": "s3cret!"}}}',
     b'{"auths": {"r": {"auth": "czNjcmV0"}}}', b'{"auths": {"r": {"username": 5, "password": "s3cret"}}}', b"\xff\xfe", b"[" * 5000],
)  # fmt: skip
def test_what_is_wrong_is_told_without_the_secret(content: bytes) -> None:
    with pytest.raises(ValueError) as caught:
        from_secret({".dockerconfigjson": content})
    assert "s3cret" not in str(caught.value)
    assert "czNjcmV0" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_secret_of_another_kind() -> None:
    with pytest.raises(ValueError, match="dockerconfigjson"):
        from_secret({"token": b"x"})


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        from_docker_config(content)
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("registry", "image", "fits"),
    [
        ("r.example", "r.example/a", True),
        ("https://r.example/", "r.example/a", True),
        ("https://r.example/v2/", "r.example/a", True),
        ("R.example", "r.example/a", True),
        ("r.example:5000", "r.example/a", False),
        ("r.example", "r.example:5000/a", False),
        ("r.example:5000", "r.example:5000/a", True),
        ("[::1]:5000", "[::1]:5000/a", True),
        ("[::1]", "[::1]:5000/a", False),
        ("https://index.docker.io/v1/", "python", True),
        ("docker.io", "team/tool", True),
        ("registry-1.docker.io", "python", True),
        ("r.example/team", "r.example/team/tool", True),
        ("r.example/team", "r.example/teamster/tool", False),
        ("r.example/team/tool", "r.example/team/tool", True),
        ("*.example", "r.example/a", True),
        ("*.example", "a.r.example/a", False),
        ("*.example", "example/a", False),
        ("r*.example", "registry.example/a", True),
        ("*", "r.example/a", False),
        ("example", "r.example/a", False),
        ("r.example.evil.com", "r.example/a", False),
    ],
)
def test_whom_a_login_is_for(registry: str, image: str, fits: bool) -> None:
    assert bool(matching([Credential(registry, "u", "p")], parse_name(image))) == fits


def test_the_closest_login_goes_first() -> None:
    wide, close, other = (Credential(place, "u", "p") for place in ("r.example", "r.example/team", "q.example"))
    assert matching([wide, other, close], parse_name("r.example/team/tool")) == (close, wide)


def test_a_login_without_a_name_is_none() -> None:
    assert matching([Credential("r.example")], parse_name("r.example/a")) == ()


def test_a_login_is_never_shown() -> None:
    assert "hunter2" not in repr(Credential("r.example", "u", "hunter2"))


def test_a_registry_in_many_spellings_is_tried_once() -> None:
    spelled = [Credential(f"{'https://' * (n % 2)}r.example{'/' * (n // 2)}", "u", "p") for n in range(400)]
    assert matching(spelled, parse_name("r.example/a")) == (spelled[0],)


def test_no_more_logins_are_tried_than_a_person_has() -> None:
    many = [Credential("r.example", f"u{n}", "p") for n in range(400)]
    assert matching(many, parse_name("r.example/a")) == tuple(many[:MOST_TRIES])


def test_a_pattern_that_no_host_can_have_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading one of a megabyte takes seconds."""
    read: list[str] = []
    monkeypatch.setattr(credentials, "host_matches", lambda pattern, host: read.append(pattern))
    assert matching([Credential("*" + "a?" * 500_000, "u", "p")], parse_name("r.example/a")) == ()
    assert read == []


def test_only_so_many_are_read() -> None:
    content = json.dumps({"auths": {f"r{n}": {"auth": "YTpi"} for n in range(10)}}).encode()
    assert [one.registry for one in from_secret({".dockerconfigjson": content}, 3)] == ["r0", "r1", "r2"]
    assert len(from_secret({".dockerconfigjson": content})) == 10
