"""What is put right on the sandbox of a bound claim, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.controllers.claim.keep import missing_marks, upkeep
from sandpool.controllers.claim.pod_metadata import USER_DOMAINS
from sandpool.loop.errors import Terminal
from sandpool.model import labels
from sandpool.model.claim import SandboxClaim
from sandpool.model.names import name_hash
from sandpool.model.patches import Patch
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate
from support.simulated.claim_parts import a_claim, a_member, a_template, condition

A, B = "sandbox.users.io/a", "sandbox.users.io/b"
MARKED = {labels.LAUNCH_TYPE: "warm", labels.TEMPLATE_REF_HASH: name_hash("t")}
EDITED = {"conditions": [condition(observedGeneration=2)]}  # the claim's generation is 3
SEEN = {"conditions": [condition(observedGeneration=3)]}


def sandbox(pod: dict[str, Any] | None = None, marks: dict[str, str] = MARKED, **meta: Any) -> Sandbox:
    return a_member(labels=marks, pod_meta=pod, **meta)


def wants(status: dict[str, Any] = SEEN, **metadata: dict[str, str]) -> SandboxClaim:
    return a_claim(status=status, **({"additionalPodMetadata": metadata} if metadata else {}))


def change(claim: SandboxClaim, box: Sandbox, origin: SandboxTemplate | None = None) -> Any:
    patch = upkeep(claim, box, origin, USER_DOMAINS)
    if patch is None:
        return None
    assert isinstance(patch, Patch)
    body: Any = patch.body
    assert body["metadata"]["uid"] == "warm-uid"
    return body.get("spec", {}).get("podTemplate", {}).get("metadata")


def test_nothing_to_do() -> None:
    assert upkeep(wants(), sandbox(), a_template(), USER_DOMAINS) is None
    assert upkeep(wants(labels={A: "1"}), sandbox({"labels": {A: "1"}}), None, USER_DOMAINS) is None


@pytest.mark.parametrize("origin", [None, a_template()], ids=["template gone", "template there"])
def test_what_is_new_or_other_is_written(origin: SandboxTemplate | None) -> None:
    box = sandbox({"labels": {A: "1"}, "annotations": {"x": "1"}})
    found = change(wants(EDITED, labels={A: "2", B: "1"}, annotations={"x": "1"}), box, origin)
    assert found == {"labels": {A: "2", B: "1"}}


def test_what_the_claim_dropped_goes_if_it_was_the_claims() -> None:
    pod = {"labels": {A: "1", B: "1", "app": "x"}, "annotations": {"mine": "1", "ours": "1", "kubernetes.io/x": "1"}}
    origin = a_template(meta={"labels": {B: "1"}, "annotations": {"ours": "1"}})
    assert change(wants(EDITED), sandbox(pod), origin) == {"labels": {A: None}, "annotations": {"mine": None}}


def test_nothing_goes_where_nobody_can_say_whose_it_is() -> None:
    assert change(wants(EDITED), sandbox({"labels": {A: "1"}}), None) is None


def test_nothing_goes_unless_the_claim_was_edited() -> None:
    """The template may have lost the key since: what a running sandbox was made with is its own."""
    assert change(wants(SEEN), sandbox({"labels": {A: "1"}}), a_template()) is None


def test_the_template_is_not_contradicted() -> None:
    origin = a_template(meta={"labels": {A: "1"}})
    with pytest.raises(Terminal, match="the template says '1'"):
        change(wants(EDITED, labels={A: "2"}), sandbox({"labels": {A: "1"}}), origin)


def test_a_running_sandbox_does_not_follow_its_template() -> None:
    """Neither edited metadata nor another template of the pool reaches it."""
    origin = a_template(meta={"labels": {A: "new"}, "annotations": {"x": "new"}})
    assert upkeep(wants(EDITED), sandbox({"labels": {A: "old"}}), origin, USER_DOMAINS) is None


@pytest.mark.parametrize("asks", [{"env": [{"name": "A", "value": "1"}]}, {"volumeClaimTemplates": [{"spec": {}}]}])
def test_what_comes_too_late_for_a_warm_one_is_told(asks: dict[str, Any]) -> None:
    with pytest.raises(Terminal, match=r"spec\.(env|volumeClaimTemplates) was set after sandbox warm"):
        upkeep(a_claim(**asks), sandbox(), None, USER_DOMAINS)
    cold = sandbox(marks={**MARKED, labels.LAUNCH_TYPE: "cold"})
    assert upkeep(a_claim(**asks), cold, None, USER_DOMAINS) is None


@pytest.mark.parametrize(
    ("name", "there", "missing"),
    [
        ("warm", {}, {labels.LAUNCH_TYPE: "warm", labels.TEMPLATE_REF_HASH: name_hash("t")}),
        ("c", {}, {labels.LAUNCH_TYPE: "cold", labels.TEMPLATE_REF_HASH: name_hash("t")}),
        ("c", {labels.LAUNCH_TYPE: "warm"}, {labels.TEMPLATE_REF_HASH: name_hash("t")}),
        ("warm", {labels.LAUNCH_TYPE: "cold"}, {labels.TEMPLATE_REF_HASH: name_hash("t")}),
        ("warm", {labels.LAUNCH_TYPE: "warm", labels.TEMPLATE_REF_HASH: "other"}, {}),
    ],
)
def test_marks_are_added_and_never_overwritten(name: str, there: dict[str, str], missing: dict[str, str]) -> None:
    box = a_member(name=name, labels={"x": "y", **there}, annotations={labels.TEMPLATE_REF: "t"})
    assert missing_marks(a_claim(), box) == missing


def test_marks_travel_alone() -> None:
    box = a_member(labels={labels.TEMPLATE_REF_HASH: "x"})
    patch = upkeep(wants(), box, None, USER_DOMAINS)
    assert patch is not None
    assert patch.body == {"metadata": {"uid": "warm-uid", "labels": {labels.LAUNCH_TYPE: "warm"}}}
