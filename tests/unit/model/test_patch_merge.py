"""Merge patch: RFC 7386, and the smallest patch between two documents."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.model.documents import MAX_DEPTH, same, without_nulls
from sandpool.model.patches import BadPatch, PatchError, apply_merge_patch, diff
from support.simulated.model_search import unhurried


@pytest.mark.parametrize(
    ("doc", "patch", "expected"),
    [
        # the examples of RFC 7386, appendix A, that have an object for a patch
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        (["a", "b"], {"a": None}, {}),
        # what Kubernetes does beyond it
        ({}, {"a": [{"b": None, "c": 1}]}, {"a": [{"c": 1}]}),
        ({"a": {}}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
        ({"a": None}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ],
)
def test_merge(doc: Any, patch: Any, expected: Any) -> None:
    assert same(apply_merge_patch(doc, patch), expected)


@pytest.mark.parametrize("patch", [[], "x", None, 1, True])
def test_only_objects_are_merge_patches(patch: Any) -> None:
    with pytest.raises(BadPatch, match="error decoding patch"):
        apply_merge_patch({}, patch)


def test_a_patch_without_a_difference_returns_the_document_itself() -> None:
    doc = {"metadata": {"labels": {"a": "b"}}, "list": [1, {"x": 1}]}
    assert apply_merge_patch(doc, {"metadata": {"labels": {"a": "b"}}, "list": [1, {"x": 1}], "gone": None}) is doc


def test_numbers_and_booleans_differ() -> None:
    assert apply_merge_patch({"a": 1}, {"a": True}) == {"a": True}
    assert apply_merge_patch({"a": 1}, {"a": True})["a"] is True


def test_what_is_not_touched_stays_the_same_object() -> None:
    doc: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {"x": []}}
    patched = apply_merge_patch(doc, {"metadata": {"annotations": {"c": "d"}}})
    assert patched["spec"] is doc["spec"]
    assert patched["metadata"]["labels"] is doc["metadata"]["labels"]
    assert "annotations" not in doc["metadata"]


def test_a_patch_that_is_too_deep_is_refused() -> None:
    patch: Any = {}
    for _ in range(MAX_DEPTH):
        patch = {"a": patch}
    with pytest.raises(PatchError, match="nests deeper"):
        apply_merge_patch({}, patch)


scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a"])
keys = st.sampled_from(["a", "b", "c"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)
documents = st.dictionaries(keys, values, max_size=3)


@unhurried
@given(documents, documents)
def test_diff_leads_from_one_to_the_other(old: Any, new: Any) -> None:
    old, new = without_nulls(old), without_nulls(new)
    before = copy.deepcopy((old, new))
    patch = diff(old, new)
    assert same([old, new], list(before))
    if patch is None:
        assert same(old, new)
    else:
        assert same(apply_merge_patch(old, patch), new)
        assert not same(old, new)


@unhurried
@given(documents, documents)
def test_diff_is_minimal(old: Any, new: Any) -> None:
    """Leaving out any one member of the patch, at any depth, must miss the goal."""
    old, new = without_nulls(old), without_nulls(new)
    patch = diff(old, new)
    for smaller in _less(patch or {}):
        assert not same(apply_merge_patch(old, smaller), new)


def _less(patch: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for key, value in patch.items():
        rest = {other: kept for other, kept in patch.items() if other != key}
        found.append(rest)
        if isinstance(value, dict):
            found += [{**rest, key: inner} for inner in _less(value)]
    return found
