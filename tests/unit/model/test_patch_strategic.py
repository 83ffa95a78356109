"""Strategic merge patch over the Pod schema. The expected results were compared with apimachinery's own implementation."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest

from sandpool.model import patch_strategic
from sandpool.model.kinds import PODS
from sandpool.model.patches import BadPatch, PatchError, PatchTooLarge, apply_strategic_patch
from sandpool.model.schemas import structural


def patched(doc: Any, patch: Any) -> Any:
    before = copy.deepcopy([doc, patch])
    outcome = apply_strategic_patch(doc, patch, structural(PODS))
    assert [doc, patch] == before
    return outcome


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}}


A, B, C = ({"name": name, "image": "i"} for name in "abc")


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        pytest.param([A, B], [{"name": "b", "image": "j"}], [A, {"name": "b", "image": "j"}], id="merged by name"),
        pytest.param([A], [B], [B, A], id="new ones first, as Kubernetes has it"),
        pytest.param([A, B], [{"name": "a", "$patch": "delete"}], [B], id="deleted by name"),
        pytest.param([A, B], [C, {"$patch": "replace"}], [C], id="replaced"),
        pytest.param([A, B], [{"name": "z", "$patch": "delete"}], [A, B], id="nothing to delete"),
        pytest.param([A], [{"name": "a", "image": None}], [{"name": "a"}], id="null removes inside"),
    ],
)
def test_lists_of_objects(before: list[Any], patch: list[Any], after: list[Any]) -> None:
    assert patched(pod(*before), {"spec": {"containers": patch}})["spec"]["containers"] == after


@pytest.mark.parametrize(
    ("before", "patch", "order", "after"),
    [
        pytest.param([A, B, C], None, "cba", "cba", id="only the order"),
        pytest.param([A, B, C], None, "ca", "bca", id="unnamed ones keep their place"),
        pytest.param([A, B], [C], "acb", "acb", id="with a new one"),
        pytest.param([A, B], [C, {"name": "a", "$patch": "delete"}], "cb", "cb", id="with a deleted one"),
        pytest.param(None, [A, B], "ab", "ab", id="a new list"),
    ],
)
def test_order_of_elements(before: Any, patch: Any, order: str, after: str) -> None:
    doc = {"spec": {"containers": before} if before is not None else {}}
    wanted: dict[str, Any] = {"$setElementOrder/containers": [{"name": name} for name in order]}
    if patch is not None:
        wanted["containers"] = patch
    merged = patched(doc, {"spec": wanted})["spec"]
    assert "".join(container["name"] for container in merged["containers"]) == after
    assert merged.keys() == {"containers"}


def test_an_order_that_contradicts_the_list_is_refused() -> None:
    wanted = {"containers": [A, B], "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}
    with pytest.raises(PatchError, match="doesn't match"):
        patched(pod(A), {"spec": wanted})


def test_lists_of_words_are_sets_where_the_schema_says_so() -> None:
    doc = {"metadata": {"finalizers": ["a", "b"]}}
    assert patched(doc, {"metadata": {"finalizers": ["c", "b"]}})["metadata"]["finalizers"] == ["c", "a", "b"]
    gone = patched(doc, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}})
    assert gone == {"metadata": {"finalizers": ["b"]}}


def test_atomic_lists_are_replaced() -> None:
    doc = pod({"name": "a", "args": ["x", "y"]}, tolerations=[{"key": "k"}])
    patch = {"spec": {"containers": [{"name": "a", "args": ["z"]}], "tolerations": []}}
    assert patched(doc, patch) == pod({"name": "a", "args": ["z"]}, tolerations=[])


def test_retained_keys_replace_one_source_by_another() -> None:
    doc = pod(volumes=[{"name": "v", "emptyDir": {}}])
    patch = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}}
    assert patched(doc, patch)["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]
    with pytest.raises(BadPatch, match="retainKeys"):
        patched(doc, {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "hostPath": {}}]}})


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"a": "1", "$patch": "replace"}, {"a": "1"}),
        ({"$patch": "delete"}, {}),
        ({"a": "1"}, {"old": "x", "a": "1"}),
        ({"old": None}, {}),
    ],
)
def test_maps(patch: Any, expected: Any) -> None:
    doc = {"spec": {"nodeSelector": {"old": "x"}}}
    assert patched(doc, {"spec": {"nodeSelector": patch}}) == {"spec": {"nodeSelector": expected}}


def test_directives_never_reach_the_document() -> None:
    outcome = patched({}, {"spec": {"containers": [A, {"name": "b", "$patch": "delete"}], "nodeSelector": {"x": None}}})
    assert outcome == {"spec": {"containers": [A], "nodeSelector": {}}}


@pytest.mark.parametrize(
    ("doc", "patch", "error"),
    [
        (pod(A), {"spec": {"containers": [{"image": "x"}]}}, "does not contain declared merge key: name"),
        (pod(A), {"spec": {"containers": ["x"]}}, "list element types are not identical"),
        (pod(A), {"spec": {"containers": [[A]]}}, "lists of lists are not supported"),
        (pod(A), {"spec": {"$patch": "explode"}}, "unknown patch type: explode"),
        (pod(A), {"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}, "cannot yet be specified"),
        (pod(A), {"spec": {"$setElementOrder": []}}, "invalid patch format of setElementOrder list"),
        (pod(A), {"spec": {"$setElementOrder/containers": {}}}, "invalid patch format of setElementOrder list"),
        (pod(A), {"metadata": {"$deleteFromPrimitiveList": []}}, "invalid patch format of primitive list"),
        (pod(A), [], "error decoding patch"),
    ],
)
def test_refusals(doc: Any, patch: Any, error: str) -> None:
    with pytest.raises(PatchError, match=error):
        patched(doc, patch)


def test_a_patch_without_a_difference_returns_the_document_itself() -> None:
    doc = pod(A, B)
    assert patched(doc, {"spec": {"containers": [B]}}) is doc
    assert patched(doc, {"metadata": {"name": "p"}}) is doc


def test_what_is_not_touched_stays_the_same_object() -> None:
    doc = pod(A, B, nodeSelector={"x": "y"})
    outcome = patched(doc, {"spec": {"containers": [{"name": "b", "image": "j"}]}})
    assert outcome["metadata"] is doc["metadata"]
    assert outcome["spec"]["nodeSelector"] is doc["spec"]["nodeSelector"]
    assert outcome["spec"]["containers"][0] is A


def calls(count: int) -> int:
    """How many Python functions are called to merge lists of that length."""
    live = [{"name": f"c{number}", "image": "i"} for number in range(count)]
    wanted = [{"name": f"c{number}", "image": "j"} for number in reversed(range(count))]
    called, outcome = called_for(pod(*live), {"spec": {"containers": wanted}})
    assert [container["image"] for container in outcome["spec"]["containers"]] == ["j"] * count
    return called


def called_for(doc: Any, patch: Any, most: int = sys.maxsize) -> tuple[int, Any]:
    """How many Python functions a patch calls, and its outcome; the test fails when there are more than `most`."""
    called = 0

    def step(frame: object, event: str, argument: object) -> None:
        nonlocal called
        called += event == "call"
        if called > most:
            sys.setprofile(None)
            pytest.fail(f"more than {most} calls")

    schema = structural(PODS)
    sys.setprofile(step)
    try:
        outcome = apply_strategic_patch(doc, patch, schema)
    finally:
        sys.setprofile(None)
    return called, outcome


def test_long_lists_are_not_walked_for_each_element() -> None:
    assert calls(800) < 3 * calls(400)


@pytest.mark.parametrize(
    "again",
    [
        pytest.param({}, id="nothing to merge"),
        pytest.param({"x": {"k1": "w"}}, id="one key of a large map"),
        pytest.param({"ports": [{"containerPort": 1}]}, id="one element of a long list"),
    ],
)
def test_an_element_that_is_named_again_and_again_is_not_merged_without_end(again: dict[str, Any]) -> None:
    """Each time costs what it is merged into, so a patch of a few hundred kilobytes could take a minute."""
    large = {
        "x": {f"k{number}": "v" for number in range(5_000)},
        "ports": [{"containerPort": number} for number in range(5_000)],
        **{f"k{number}": "v" for number in range(5_000)},
    }
    patch = [{"name": "a", **large}, *({"name": "a", **again} for _ in range(8_000))]
    with pytest.raises(PatchTooLarge):
        called_for(pod(A), {"spec": {"containers": patch}}, 3 * patch_strategic.MAX_WORK)


def test_the_identity_of_an_element_is_not_encoded_for_each_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = 0
    encode = patch_strategic.encode_sorted

    def counted(value: Any) -> bytes:
        nonlocal encoded
        text = encode(value)
        encoded += len(text)
        return text

    monkeypatch.setattr(patch_strategic, "encode_sorted", counted)
    live = [{"name": f"c{number}"} for number in range(2_000)]
    long = "x" * 100_000
    outcome = patched(pod(*live, {"name": long}), {"spec": {"containers": [{"name": long, "image": "i"}]}})
    assert outcome["spec"]["containers"][-1] == {"name": long, "image": "i"}
    assert encoded < 20 * len(long)


def test_what_a_patch_changed_is_not_compared_again_at_each_level() -> None:
    """The largest map is the deepest one, and only its last value is different."""

    def nested(levels: int, last: str) -> Any:
        value: Any = {**{f"k{number}": "v" for number in range(2_000)}, "last": last}
        for _ in range(levels):
            value = {"below": value}
        return {"metadata": {"annotations": value}}

    shallow, _ = called_for(nested(1, "old"), nested(1, "new"))
    deep, outcome = called_for(nested(100, "old"), nested(100, "new"))
    assert outcome == nested(100, "new")
    assert deep < 2 * shallow


def test_many_retained_keys_are_looked_up_not_searched() -> None:
    """Names are compared a few times each, however many there are."""
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    many = 500
    data = {Name(f"k{number}"): "v" for number in range(many)}
    apply_strategic_patch(
        {"data": dict(data)}, {"data": {"$retainKeys": [str(name) for name in data], **data}}, structural(PODS)
    )
    assert compared < 20 * many
