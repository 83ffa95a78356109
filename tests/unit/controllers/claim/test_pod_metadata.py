from __future__ import annotations

import pytest

from sandpool.controllers.claim.pod_metadata import check, merge
from sandpool.loop.errors import Terminal
from sandpool.model import labels
from sandpool.model.reasons import Reason
from sandpool.model.sandbox import PodMetadata

GOOD = "sandbox.users.io/team"


def refusal(*domains: str, **wanted: dict[str, str]) -> str:
    with pytest.raises(Terminal) as caught:
        check(PodMetadata(**wanted), domains or ("sandbox.users.io",))
    assert caught.value.reason == Reason.INVALID_METADATA
    return caught.value.message


def test_allowed_label_and_plain_annotation() -> None:
    wanted = PodMetadata(labels={GOOD: "a", "x.sandbox.users.io/y": "b"}, annotations={"note": "free text!"})
    check(wanted)
    check(None)
    assert merge(PodMetadata(labels={"app": "x"}), wanted).labels == {"app": "x", **wanted.labels}


def test_label_without_a_domain() -> None:
    assert "sandbox.users.io/team" in refusal(labels={"team": "a"})


@pytest.mark.parametrize("value", ["x" * 64, "not allowed", "ä"])
def test_bad_label_value(value: str) -> None:
    assert f'labels["{GOOD}"]: the value' in refusal(labels={GOOD: value})


@pytest.mark.parametrize("key", ["a b", "/x", "sandbox.users.io/", "sandbox.users.io/a/b", "-x", "UP.users.io/x"])
def test_bad_label_key(key: str) -> None:
    assert f'labels["{key}"]' in refusal(labels={key: "a"})


@pytest.mark.parametrize(
    "key", ["kubernetes.io/x", "x.k8s.io/y", labels.CLAIM_UID, "users.io/x", "evilsandbox.users.io/x"]
)
def test_label_domain_not_allowed(key: str) -> None:
    assert "is not allowed" in refusal(labels={key: "a"})


@pytest.mark.parametrize("key", ["kubernetes.io/x", "a.k8s.io/x", "agents.x-k8s.io/x", "extensions.agents.x-k8s.io/x"])
def test_annotation_domain_of_the_system(key: str) -> None:
    assert "belongs to the system" in refusal(annotations={key: "a"})


def test_safe_to_evict_is_accepted() -> None:
    check(PodMetadata(annotations={labels.SAFE_TO_EVICT: "true"}))


@pytest.mark.parametrize(("key", "value"), [("app", "sandbox-router"), ("APP", "Sandbox-Router")])
def test_posing_as_the_router(key: str, value: str) -> None:
    assert "pose as the router" in refusal(labels={key: value})


def test_configured_domain() -> None:
    check(PodMetadata(labels={"corp.example/x": "a", "team.corp.example/x": "a"}), ("corp.example",))
    assert "use corp.example" in refusal("corp.example", labels={GOOD: "a"})


def test_everything_wrong_is_told_at_once() -> None:
    message = refusal(labels={"a": "b", "k8s.io/x": "y"}, annotations={"k8s.io/z": ""})
    assert message.count(";") >= 2
    assert message == refusal(labels={"k8s.io/x": "y", "a": "b"}, annotations={"k8s.io/z": ""}), "in a fixed order"


def test_merge_repeats_but_never_changes() -> None:
    base = PodMetadata(labels={GOOD: "a"}, annotations={"n": "1"})
    assert merge(base, PodMetadata(labels={GOOD: "a"}, annotations={"n": "1"})) == base
    assert merge(base, None) is base
    for clash in (PodMetadata(labels={GOOD: "b"}), PodMetadata(annotations={"n": "2"})):
        with pytest.raises(Terminal) as caught:
            merge(base, clash)
        assert caught.value.reason == Reason.INVALID_METADATA
        assert "the template says" in caught.value.message
