from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from sandpool.controlplane.admission.duplicates import duplicate_fields


def test_none() -> None:
    assert duplicate_fields(b'{"a": {"b": 1}, "b": [{"a": 1}, {"a": 1}]}') == []


def test_paths_in_the_order_of_the_text_each_once() -> None:
    raw = b'{"spec": {"x": 1, "x": 2, "x": 3, "list": [{}, {"y": 1, "y": 1}]}, "metadata": {"labels": {"a": "", "a": ""}}, "spec": {}}'
    assert duplicate_fields(raw) == ["spec.x", "spec.list[1].y", "metadata.labels.a", "spec"]


def test_what_looks_like_a_field_inside_a_string_is_none() -> None:
    assert duplicate_fields(json.dumps({"a": '{"a": 1, "a": 2}'}).encode()) == []


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
)


@settings(max_examples=25, deadline=None)
@given(_json)
def test_what_a_program_wrote_has_none(document: object) -> None:
    assert duplicate_fields(json.dumps(document).encode()) == []
