"""What users write for places and ports."""

from __future__ import annotations

import pytest

from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.sandbox.arguments import Forward, Place, forward, pair, place


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mine:/tmp/x", Place("/tmp/x", "mine")),
        ("mine:x", Place("x", "mine")),
        ("mine:", Place(".", "mine")),
        ("mine:a:b", Place("a:b", "mine")),
        ("sandbox/box:/x", Place("/x", "sandbox/box")),
        ("claim/mine:/x", Place("/x", "claim/mine")),
        ("/tmp/a:b", Place("/tmp/a:b")),
        ("./a:b", Place("./a:b")),
        ("folder/a:b", Place("folder/a:b")),
        (":x", Place(":x")),
        ("file", Place("file")),
        ("-", Place("-")),
    ],
)
def test_places(text: str, found: Place) -> None:
    assert place(text) == found


def test_one_of_two_places_is_in_a_sandbox() -> None:
    assert pair("a", "mine:b") == (Place("a"), Place("b", "mine"))
    assert pair("mine:b", "a") == (Place("b", "mine"), Place("a"))
    for mistake in (("a", "b"), ("x:a", "y:b"), ("", "x:a")):
        with pytest.raises(Exit, match="NAME:PATH") as refused:
            pair(*mistake)
        assert refused.value.code == USAGE


def test_ports() -> None:
    assert forward("8080:80") == Forward(8080, 80)
    assert forward("80") == Forward(80, 80)
    assert forward(":80") == Forward(0, 80)


@pytest.mark.parametrize("text", ["", ":", "a", "1:b", "0", "70000", "1:2:3", "80:", "-1"])
def test_what_names_no_port(text: str) -> None:
    with pytest.raises(Exit) as refused:
        forward(text)
    assert refused.value.code == USAGE
