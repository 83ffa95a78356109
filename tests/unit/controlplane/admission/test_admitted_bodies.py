"""New objects that are alike but for their metadata are walked once, and what is said about each is the same as ever."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from sandpool.controlplane.admission.admit import Admitted, FieldValidation, admit
from sandpool.controlplane.admission.kind_schemas import LARGEST_BODY, MOST_BODIES, AdmittedBodies
from sandpool.kube.errors import BadRequest, Invalid
from sandpool.model import kinds
from support.api.counted_calls import calls_of


def pod(name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    spec = spec or {"containers": [{"name": "main", "image": "python"}]}
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", **metadata}}
    return {**head, "spec": spec}


def admitted(body: dict[str, Any], validation: FieldValidation = FieldValidation.WARN) -> Admitted:
    return admit(kinds.PODS, body, None, validation=validation)


def calls(body: dict[str, Any]) -> int:
    return calls_of(partial(admitted, body))


def test_the_second_one_is_as_the_first_but_for_its_metadata() -> None:
    spec = {"containers": [{"name": "main", "image": "one-like-it"}]}
    first = admitted(pod("first", spec)).body
    second = admitted(pod("second", spec, labels={"a": "b"})).body
    assert second["spec"] is first["spec"]
    assert list(second) == list(first)
    assert second["metadata"] == {"name": "second", "namespace": "default", "labels": {"a": "b"}}
    assert {**second, "metadata": None} == {**first, "metadata": None}
    assert first["metadata"]["name"] == "first"


def test_a_known_rest_costs_less_than_half() -> None:
    admitted(pod("any"))  # what is worked out once for all pods is not counted
    spec = {"containers": [{"name": "main", "image": "counted", "resources": {"limits": {"cpu": "1"}}}]}
    first, second = calls(pod("first", spec)), calls(pod("second", spec))
    assert second < first / 2


def test_metadata_of_a_known_rest_is_looked_at() -> None:
    admitted(pod("good"))
    with pytest.raises(Invalid, match=r"metadata\.labels"):
        admitted(pod("bad", labels={"a": "not a value!"}))
    with pytest.raises(Invalid, match=r"metadata\.name"):
        admitted(pod("Not A Name"))
    assert admitted(pod("warned", nonsense=1)).warnings == ('unknown field "metadata.nonsense"',)
    with pytest.raises(BadRequest, match="strict decoding error"):
        admitted(pod("strict", nonsense=1), FieldValidation.STRICT)


def test_a_known_rest_changes_nothing_about_what_is_said_of_bad_metadata() -> None:
    """Neither that rules were not looked at, of a kind that has some."""
    spec = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "said-the-same"}]}}}
    box = {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "spec": spec}
    causes = []
    for name in ("", "known-from-here", ""):
        try:
            admit(kinds.SANDBOXES, {**box, "metadata": {"name": name, "namespace": "default"}}, None)
        except Invalid as error:
            causes.append(error.causes)
    assert len(causes) == 2
    assert causes[0] == causes[1]
    assert any("some validation rules were not checked" in cause.message for cause in causes[1])


def test_what_was_said_once_is_said_again() -> None:
    spec = {"containers": [{"name": "main", "image": "python"}], "nonsense": True}
    for name in ("first", "second"):
        assert admitted(pod(name, spec)).warnings == ('unknown field "spec.nonsense"',)
        with pytest.raises(Invalid, match=r"spec\.containers"):
            admitted(pod(name, {"containers": []}))


def test_one_and_true_are_different() -> None:
    spec = {"containers": [{"name": "main", "image": "python"}], "terminationGracePeriodSeconds": 1}
    assert admitted(pod("one", spec)).body["spec"]["terminationGracePeriodSeconds"] == 1
    with pytest.raises(BadRequest):
        admitted(pod("two", {**spec, "terminationGracePeriodSeconds": True}))


def test_a_change_does_not_reach_the_others() -> None:
    first = admitted(pod("first")).body
    changed = {**first, "metadata": {**first["metadata"], "labels": {"x": "y"}}}
    assert admit(kinds.PODS, changed, first).body["metadata"]["labels"] == {"x": "y"}
    assert "labels" not in admitted(pod("second")).body["metadata"]


def test_memory_is_bounded() -> None:
    cache = AdmittedBodies()
    for number in range(MOST_BODIES + 5):
        body = {"metadata": {"name": str(number)}, "spec": number}
        cache.keep(cache.find(body)[0], body)
    assert cache.find({"metadata": None, "spec": 4})[1] is None
    assert cache.find({"metadata": None, "spec": 5})[1] == {"metadata": None, "spec": 5}
    large = {"metadata": {}, "spec": "x" * LARGEST_BODY}
    key, known = cache.find(large)
    cache.keep(key, large)
    assert known is None
    assert cache.find(large)[1] is None
