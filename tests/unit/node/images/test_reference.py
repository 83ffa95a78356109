"""What an image's name means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.base.errors import NodeError
from sandpool.node.images.reference import (
    DirectoryReference,
    HostReference,
    ImageName,
    canonical_authority,
    host_of,
    loopback,
    parse,
    parse_name,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("host", HostReference()),
        ("dir:/srv/roots/debian", DirectoryReference("/srv/roots/debian")),
        ("python", ImageName("docker.io", "library/python", "latest")),
        ("python:3.12", ImageName("docker.io", "library/python", "3.12")),
        ("team/tool", ImageName("docker.io", "team/tool", "latest")),
        ("docker.io/python", ImageName("docker.io", "library/python", "latest")),
        ("index.docker.io/team/tool:1", ImageName("docker.io", "team/tool", "1")),
        ("localhost/tool", ImageName("localhost", "tool", "latest")),
        ("localhost:5000/tool:a_B.c-d", ImageName("localhost:5000", "tool", "a_B.c-d")),
        ("registry.example.com/a/b/c:1", ImageName("registry.example.com", "a/b/c", "1")),
        ("REGISTRY.example.com:443/a", ImageName("registry.example.com:443", "a", "latest")),
        ("127.0.0.1:5000/a", ImageName("127.0.0.1:5000", "a", "latest")),
        ("[::1]:5000/a:1", ImageName("[::1]:5000", "a", "1")),
        ("[0:0::0:1]/a", ImageName("[::1]", "a", "latest")),
        (f"python@{DIGEST}", ImageName("docker.io", "library/python", "", DIGEST)),
        (f"r.example:1/python:3.12@{DIGEST}", ImageName("r.example:1", "python", "3.12", DIGEST)),
        ("host/tool", ImageName("docker.io", "host/tool", "latest")),
        ("docker.io/library/host", ImageName("docker.io", "library/host", "latest")),
    ],
)
def test_what_it_means(text: str, meant: object) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "a b", "a:", "a:b:c", "a:-x", "a:" + "x" * 129, "/a", "a/", "a//b", "../a", "a/../b", "a/./b", "A/b/C", "-a",
        "a_", "a___b", "a@", "a@sha256:abc", f"a@{DIGEST.upper()}", f"a@{DIGEST}0", f"a@sha512:{'0' * 128}", "a@b@c",
        "r.example:0/a", "r.example:65536/a", "r.example:x/a", "[::1/a", "[::g]:1/a", "[]/a", "user:pass@r.example/a",
        "http://r.example/a", "r.example/a?b", "r.example/a#b", "r.example/ä", "r.example/a\n", "r.example/a%2fb",
        "a/" * 200 + "b", "r..example/a", "-r.example/a", "ａ/b", "a:１",
    ],
)  # fmt: skip
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(NodeError) as caught:
        parse(text)
    assert caught.value.reason == "InvalidImageName"
    assert len(caught.value.message) < 600


def test_upper_case_is_told() -> None:
    with pytest.raises(NodeError, match="lower case"):
        parse("Python")


PART = st.from_regex(r"[a-z0-9]{1,4}((\.|_|__|-{1,2})[a-z0-9]{1,3})?", fullmatch=True)
REGISTRY = st.one_of(
    st.sampled_from(["docker.io", "localhost", "localhost:5000", "[::1]:5000", "127.0.0.1:80", "[fd00::1]"]),
    st.from_regex(r"[a-z][a-z0-9]{0,5}\.[a-z]{2,4}(:[1-9][0-9]{0,3})?", fullmatch=True),
)
NAMES = st.builds(
    lambda registry, parts, tag, digest: ImageName(
        registry, "/".join(parts), tag if tag or digest else "latest", digest
    ),
    REGISTRY,
    st.lists(PART, min_size=2, max_size=4),
    st.from_regex(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,8})?", fullmatch=True),
    st.sampled_from(["", DIGEST]),
)


@given(NAMES)
def test_a_complete_name_means_itself(name: ImageName) -> None:
    assert parse_name(str(name)) == name


@given(st.text(max_size=80))
def test_any_text_is_a_name_or_is_refused_and_what_it_means_is_stable(text: str) -> None:
    try:
        name = parse_name(text)
    except NodeError:
        return
    assert parse_name(str(name)) == name
    assert str(name).isascii()
    assert ".." not in name.repository.split("/")


@given(st.text(alphabet="abz019.:[]-AZ", max_size=20))
def test_an_authority_has_one_spelling(text: str) -> None:
    once = canonical_authority(text)
    assert once is None or canonical_authority(once) == once


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1"])
def test_loopback(host: str) -> None:
    assert loopback(host)


@pytest.mark.parametrize(
    "host", ["", "example.com", "128.0.0.1", "::2", "localhost.example.com", "0.0.0.0", "2130706433"]
)
def test_not_loopback(host: str) -> None:
    assert not loopback(host)


def test_host_of() -> None:
    assert [host_of(one) for one in ("a.example:1", "[::1]:5000", "[::1]", "b")] == ["a.example", "::1", "::1", "b"]
