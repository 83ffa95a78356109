"""What an API server is asked about callers, and what its answers mean."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.router.kubernetes import access_review, reviewed, token_review
from sandpool.router.ports import Caller

USER = {"username": "jane", "uid": "7", "groups": ["team"], "extra": {"b": ["2"], "a": ["1", "3"]}}


@pytest.mark.parametrize(
    ("status", "audiences", "known"),
    [
        ({"authenticated": True, "user": USER}, (), True),
        ({"authenticated": True, "user": USER, "audiences": ["router"]}, ("other", "router"), True),
        ({"authenticated": True, "user": USER, "audiences": ["api"]}, ("router",), False),
        ({"authenticated": True, "user": USER}, ("router",), False),
        ({"authenticated": False, "user": USER}, (), False),
        ({"authenticated": "true", "user": USER}, (), False),
        ({"authenticated": True, "user": {"username": ""}}, (), False),
        ({"authenticated": True}, (), False),
        ({"error": "it has expired"}, (), False),
        (None, (), False),
    ],
)
def test_who(status: dict[str, Any] | None, audiences: tuple[str, ...], known: bool) -> None:
    found = reviewed({"status": status}, audiences)
    expected = Caller("jane", "7", ("team",), (("a", ("1", "3")), ("b", ("2",))))
    assert found == (expected if known else None)


def test_the_questions() -> None:
    assert token_review("t", ()) == {"spec": {"token": "t"}}
    assert token_review("t", ("router",)) == {"spec": {"token": "t", "audiences": ["router"]}}
    asked = access_review(Caller("jane", "7", ("team",), (("a", ("1",)),)), "red")["spec"]
    assert asked == {
        "user": "jane",
        "uid": "7",
        "groups": ["team"],
        "extra": {"a": ["1"]},
        "resourceAttributes": {
            "group": "agents.x-k8s.io",
            "resource": "sandboxes",
            "subresource": "connect",
            "verb": "create",
            "namespace": "red",
        },
    }
