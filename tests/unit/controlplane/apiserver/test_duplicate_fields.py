from __future__ import annotations

import json
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from sandpool.controlplane.apiserver.json_text import duplicate_fields


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


def test_a_long_name_costs_no_text_for_each_field_below_it() -> None:
    """One unknown key of half a megabyte with thousands of members would otherwise be gigabytes of paths."""
    inner = ",".join(f'"m{number}":1' for number in range(2000))
    raw = f'{{"{"k" * 500_000}":{{{inner},"m0":2}}}}'.encode()
    tracemalloc.start()
    try:
        found = duplicate_fields(raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == ["k" * 256]
    assert peak < 20 * len(raw)


def test_so_many_are_told() -> None:
    raw = ("{" + ",".join(f'"f{number}":1,"f{number}":2' for number in range(1000)) + "}").encode()
    assert duplicate_fields(raw) == [f"f{number}" for number in range(64)]
