from __future__ import annotations

from typing import Any

import pytest

from sandpool.controllers.claim import pod_metadata
from sandpool.controllers.claim.pod_metadata import check, merge
from sandpool.loop.errors import Terminal
from sandpool.model import labels, names
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


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param({"labels": {f"sandbox.users.io/{number}": "v" for number in range(20_000)}}, id="many"),
        pytest.param({"labels": {f"-{number}": "v" for number in range(1_000)}}, id="many wrong ones"),
        pytest.param({"labels": {"x" * 200_000: "v"}}, id="a long label"),
        pytest.param({"annotations": {f"a{number}": "x" * 1_000 for number in range(1_000)}}, id="a long text"),
        pytest.param({"annotations": {"kubernetes.io/" + "x" * 200_000: "v"}}, id="a long annotation"),
    ],
)
def test_what_is_looked_at_and_said_is_bounded(wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim of a megabyte is looked at in each of its reconciles, and the answer is stored in its status."""
    looked, real = 0, names.qualified_name

    def counted(text: str) -> list[str]:
        nonlocal looked
        looked += 1
        return real(text)

    monkeypatch.setattr(pod_metadata, "qualified_name", counted)
    with pytest.raises(Terminal) as refused:
        check(PodMetadata(**wanted))
    assert looked < 20
    assert len(refused.value.message) < 16_000


def test_as_much_as_may_be_is_taken() -> None:
    labels = {f"sandbox.users.io/{number}": "v" for number in range(pod_metadata.MOST - 1)}
    check(PodMetadata(labels=labels, annotations={"a": "x" * 200_000}))


def test_a_long_value_that_the_template_sets_is_cut() -> None:
    with pytest.raises(Terminal) as refused:
        merge(PodMetadata(annotations={"a": "x" * 100_000}), PodMetadata(annotations={"a": "y" * 100_000}))
    assert len(refused.value.message) < 1_000
