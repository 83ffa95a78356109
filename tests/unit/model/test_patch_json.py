"""JSON patch: RFC 6902, the habits of the Go library that Kubernetes applies it with, and that nothing is copied in vain."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sandpool.model import patch_json
from sandpool.model.documents import MAX_DEPTH, depth, same
from sandpool.model.patch_json import MAX_OPERATIONS, MAX_WORK
from sandpool.model.patches import BadPatch, PatchError, PatchTooLarge, apply_json_patch
from support.simulated.model_search import unhurried


def op(name: str, path: str, value: Any = ..., source: str | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"op": name, "path": path}
    if value is not ...:
        made["value"] = value
    if source is not None:
        made["from"] = source
    return made


@pytest.mark.parametrize(
    ("doc", "patch", "expected"),
    [
        pytest.param({}, [op("add", "/a", 1)], {"a": 1}, id="add member"),
        pytest.param({"a": 1}, [op("add", "/a", 2)], {"a": 2}, id="add replaces"),
        pytest.param({"a": [1, 3]}, [op("add", "/a/1", 2)], {"a": [1, 2, 3]}, id="add inserts"),
        pytest.param({"a": [1]}, [op("add", "/a/-", 2)], {"a": [1, 2]}, id="add appends"),
        pytest.param({"a": [1]}, [op("add", "/a/1", 2)], {"a": [1, 2]}, id="add at the end"),
        pytest.param({"a": [1]}, [op("add", "/a/-1", 2)], {"a": [1, 2]}, id="minus one is the end"),
        pytest.param({}, [op("add", "/a")], {"a": None}, id="no value is null"),
        pytest.param({}, [op("add", "/", 1)], {"": 1}, id="the empty key"),
        pytest.param({"a/b": 1, "m~n": 2}, [op("remove", "/a~1b")], {"m~n": 2}, id="escaped slash"),
        pytest.param({"m~n": 2}, [op("remove", "/m~0n")], {}, id="escaped tilde"),
        pytest.param({"~1": 1}, [op("remove", "/~01")], {}, id="tilde then one"),
        pytest.param({"a": [1, 2, 3]}, [op("remove", "/a/-1")], {"a": [1, 2]}, id="negative index"),
        pytest.param({"a": [1, 2]}, [op("replace", "/a/0", 9)], {"a": [9, 2]}, id="replace element"),
        pytest.param({}, [op("replace", "/a", 9)], {"a": 9}, id="replace of an absent member adds"),
        pytest.param({"a": 1}, [op("replace", "", {"b": 2})], {"b": 2}, id="replace all"),
        pytest.param({"a": {"b": 1}}, [op("move", "/c", source="/a/b")], {"a": {}, "c": 1}, id="move"),
        pytest.param({"a": 1}, [op("move", "/a", source="/a")], {"a": 1}, id="move onto itself"),
        pytest.param({"a": {"b": 1}}, [op("copy", "/c", source="/a")], {"a": {"b": 1}, "c": {"b": 1}}, id="copy"),
        pytest.param({}, [op("copy", "/c", source="/a")], {"c": None}, id="copy of an absent member is null"),
        pytest.param({"a": [{"b": 1}]}, [op("test", "/a/0", {"b": 1})], {"a": [{"b": 1}]}, id="test"),
        pytest.param({"a": 1}, [op("test", "", {"a": 1})], {"a": 1}, id="test all"),
        pytest.param({}, [op("test", "/status")], {}, id="test that nothing is there"),
        pytest.param({}, [op("test", "/status", None)], {}, id="test absent against null"),
        pytest.param({"a": None}, [op("test", "/a", None)], {"a": None}, id="test null"),
    ],
)
def test_operation(doc: Any, patch: Any, expected: Any) -> None:
    assert same(apply_json_patch(doc, patch), expected)


@pytest.mark.parametrize(
    ("doc", "patch", "message"),
    [
        ({"a": 1}, [op("test", "/a", 2)], "testing value /a failed: test failed"),
        ({"a": 1}, [op("test", "/a", True)], "testing value /a failed: test failed"),
        ({"a": 1}, [op("test", "/a", 1.0)], "testing value /a failed: test failed"),
        ({"a": 1}, [op("test", "/a")], "testing value /a failed: test failed"),
        ({"a": {}}, [op("test", "/a", None)], "testing value /a failed: test failed"),
        ({}, [op("test", "/a/b", 1)], "test operation does not apply: is missing path: /a/b: missing value"),
        (
            {"a": [1]},
            [op("test", "/a/1", 1)],
            "error in test for path: '/a/1': Unable to access invalid index: 1: invalid index referenced",
        ),
        ({}, [op("add", "/a/b", 1)], 'add operation does not apply: doc is missing path: "/a/b": missing value'),
        ({"a": 1}, [op("add", "/a/b", 1)], 'add operation does not apply: doc is missing path: "/a/b": missing value'),
        ({}, [op("add", "", 1)], 'add operation does not apply: doc is missing path: "": missing value'),
        (
            {"a": []},
            [op("add", "/a/1", 1)],
            "error in add for path: '/a/1': Unable to access invalid index: 1: invalid index referenced",
        ),
        (
            {"a": []},
            [op("add", "/a/x", 1)],
            "error in add for path: '/a/x': value was not a proper array index: 'x': "
            'strconv.Atoi: parsing "x": invalid syntax',
        ),
        (
            {},
            [op("remove", "/a")],
            "error in remove for path: '/a': Unable to remove nonexistent key: a: missing value",
        ),
        ({}, [op("remove", "/a/b")], 'remove operation does not apply: doc is missing path: "/a/b": missing value'),
        ({}, [op("replace", "/a/b", 1)], "replace operation does not apply: doc is missing path: /a/b: missing value"),
        (
            {"a": []},
            [op("replace", "/a/0", 1)],
            "replace operation does not apply: doc is missing key: /a/0: missing value",
        ),
        ({"a": 1}, [op("replace", "", 1)], "replace operation value must be object or array"),
        (
            {"a": {"b": 1}},
            [op("move", "/a/b/c", source="/a/b")],
            "move operation does not apply: doc is missing destination path: /a/b/c: missing value",
        ),
        (
            {},
            [op("move", "/a", source="/b/c")],
            "move operation does not apply: doc is missing from path: /b/c: missing value",
        ),
        (
            {},
            [op("move", "/a", source="/b")],
            "error in move for path: 'b': Unable to remove nonexistent key: b: missing value",
        ),
        (
            {},
            [op("copy", "/a", source="/b/c")],
            "copy operation does not apply: doc is missing from path: /b/c: missing value",
        ),
        ({}, [{"op": "add"}], "add operation failed to decode path: missing value"),
        ({}, [{"op": "test"}], "test operation failed to decode path: operation missing path field: missing value"),
        (
            {},
            [{"op": "move", "path": "/a"}],
            "move operation failed to decode from: operation, missing from field: missing value",
        ),
        ({}, [{"op": "frobnicate", "path": "/a"}], "Unexpected kind: frobnicate"),
        ({}, [{"path": "/a"}], "Unexpected kind: unknown"),
        ({}, [None], "Unexpected kind: unknown"),
    ],
)
def test_refusal(doc: Any, patch: Any, message: str) -> None:
    """The words are those of the Go library, compared with it when they were written down."""
    with pytest.raises(PatchError) as refused:
        apply_json_patch(doc, patch)
    assert str(refused.value) == message
    assert not isinstance(refused.value, BadPatch)


@pytest.mark.parametrize("patch", [{}, "x", None, 1, [1], ["x"], [[]], [{"op": 1, "path": "/a"}], [op("add", 1)]])  # type: ignore[arg-type]
def test_what_is_no_patch_is_told_apart(patch: Any) -> None:
    with pytest.raises(BadPatch, match="error decoding patch: json: cannot unmarshal"):
        apply_json_patch({}, patch)


def test_a_failed_operation_leaves_the_document_as_it_was() -> None:
    doc = {"a": {"b": [1]}}
    with pytest.raises(PatchError):
        apply_json_patch(doc, [op("add", "/a/b/-", 2), op("remove", "/x")])
    assert doc == {"a": {"b": [1]}}


def test_what_is_not_touched_stays_the_same_object() -> None:
    doc: dict[str, Any] = {"metadata": {"labels": {}}, "spec": {"deep": [{}]}, "status": {}}
    patched = apply_json_patch(doc, [op("add", "/metadata/labels/a", "b"), op("test", "/spec/deep/0", {})])
    assert patched["spec"] is doc["spec"]
    assert patched["status"] is doc["status"]
    assert patched["metadata"] is not doc["metadata"]
    assert doc["metadata"] == {"labels": {}}


def test_only_tests_copy_nothing() -> None:
    doc = {"a": {"b": 1}}
    assert apply_json_patch(doc, [op("test", "/a/b", 1)]) is doc


def test_a_copy_is_independent_of_its_source() -> None:
    patch = [op("add", "/a/x", 1), op("copy", "/b", source="/a"), op("add", "/a/y", 2), op("add", "/b/z", 3)]
    assert apply_json_patch({"a": {}}, patch) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "z": 3}}


def test_values_of_the_patch_are_not_changed_by_later_operations() -> None:
    value: dict[str, Any] = {}
    apply_json_patch({}, [op("add", "/a", value), op("add", "/a/b", 1)])
    assert value == {}


def test_too_many_operations() -> None:
    with pytest.raises(PatchTooLarge, match="allowed maximum operations in a JSON patch is 10000, got 10001"):
        apply_json_patch({}, [op("test", "/a")] * (MAX_OPERATIONS + 1))
    assert apply_json_patch({}, [op("test", "/a")] * MAX_OPERATIONS) == {}


def test_that_it_is_a_patch_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each operation was seconds for the longest patch, in which nobody else was served."""
    checks: list[Any] = []
    monkeypatch.setattr(patch_json, "check_operations", checks.append)
    there_and_back = [op("move", "/b", source="/a"), op("move", "/a", source="/b")]
    assert apply_json_patch({"a": 1}, there_and_back * 500) == {"a": 1}
    assert len(checks) == 1


_LARGE = {"a": {str(n): "" for n in range(MAX_WORK // 100)}, "l": [""] * (MAX_WORK // 10), "x": {}}


@pytest.mark.parametrize(
    "steps",
    [
        [op("move", "/x/b", source="/a"), op("move", "/a", source="/x/b")],
        [op("copy", "/a/y", source="/a/0"), op("add", "/a/z", "")],
        [op("add", "/l/0", "")],
        [op("remove", "/l/0")],
        [op("move", "/l/-", source="/l/0")],
    ],
    ids=["move", "copy", "insert", "remove", "rotate"],
)
def test_a_patch_that_does_too_much_to_a_large_object_ends(steps: list[dict[str, Any]]) -> None:
    """However short it is: what each step costs is bounded, not only how many there are."""
    with pytest.raises(PatchTooLarge, match="too large a part of the object too often"):
        apply_json_patch(_LARGE, steps * (MAX_OPERATIONS // len(steps)))
    apply_json_patch(_LARGE, steps * 5)


def test_copies_of_copies_end_before_they_fill_the_memory() -> None:
    doubling = [op("copy", f"/a/{n}", source="/a") for n in range(60)]
    with pytest.raises(PatchError, match="Unable to complete the copy"):
        apply_json_patch({"a": {"x": "y" * 1000}}, doubling)


@pytest.mark.parametrize("name", ["add", "move"])
def test_documents_cannot_be_made_too_deep(name: str) -> None:
    """One step at a time, each of them harmless."""
    patch = []
    for level in range(1, MAX_DEPTH + 1):
        path = "/a" * (level + 1)
        patch += [op("add", path, {})] if name == "add" else [op("add", "/c", {}), op("move", path, source="/c")]
    with pytest.raises(PatchError, match="nest deeper"):
        apply_json_patch({"a": {}}, patch)
    fits = patch[: (MAX_DEPTH - 2) * (1 if name == "add" else 2)]
    assert depth(apply_json_patch({"a": {}}, fits)) == MAX_DEPTH


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"])
keys = st.sampled_from(["a", "b", "a/b", "m~n", "0", "1"])
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))
documents = st.dictionaries(keys, values, max_size=4)


def pointers(node: Any, path: str = "") -> list[str]:
    found = [path]
    if isinstance(node, dict):
        for key, child in node.items():
            found += pointers(child, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(node, list):
        for index, child in enumerate(node):
            found += pointers(child, f"{path}/{index}")
    return found


@st.composite
def patched(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """A document and operations that mean the same in RFC 6902 and in Go."""
    doc = draw(documents)
    operations = []
    current = copy.deepcopy(doc)
    for _ in range(draw(st.integers(1, 4))):
        existing = [path for path in pointers(current) if path]
        name = draw(st.sampled_from(["add", "remove", "replace", "move", "copy", "test"] if existing else ["add"]))
        spot = draw(st.sampled_from(pointers(current)))
        fresh = f"{spot}/{draw(st.sampled_from(['a', 'b', '0', '-']))}"
        step = op(name, fresh if name in ("add", "move", "copy") else draw(st.sampled_from(existing)))
        if name in ("move", "copy"):
            # Go takes the value out first, so a move below itself may find another parent; the RFC forbids it.
            sources = [path for path in existing if name == "copy" or not fresh.startswith(f"{path}/")]
            if not sources:
                continue
            step["from"] = draw(st.sampled_from(sources))
        if name in ("add", "replace", "test"):
            step["value"] = draw(values)
        operations.append(step)
        try:
            current = jsonpatch.apply_patch(current, [step])
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
            break
    assume(operations)
    return doc, operations


@unhurried
@given(patched())
def test_agrees_with_the_reference(case: tuple[Any, list[Any]]) -> None:
    doc, patch = case
    before = copy.deepcopy(case)
    try:
        expected = ("ok", jsonpatch.apply_patch(doc, patch))
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        expected = ("refused", None)
    try:
        outcome = ("ok", apply_json_patch(doc, patch))
    except PatchError:
        outcome = ("refused", None)
    assert same(doc, before[0])
    assert same(patch, before[1])
    # The reference compares numbers and booleans as Python does.
    if outcome[0] == expected[0]:
        assert same(outcome[1], expected[1])
    else:
        assert expected[0] == "ok"
        assert patch[-1]["op"] == "test" or any(step["op"] == "test" for step in patch)
