"""Schemas as functions: pruning, defaults and validation in one pass that changes nothing in place."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.controlplane.admission.causes import Findings
from sandpool.controlplane.admission.dialect import Dialect
from sandpool.controlplane.admission.schema_compiler import compile_schema
from sandpool.kube.errors import Cause

TEXT = {"type": "string"}
SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": TEXT,
        "mode": {"type": "string", "enum": ["A", "B"], "default": "A"},
        "size": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 9},
        "short": {"type": "string", "minLength": 2, "maxLength": 3},
        "word": {"type": "string", "pattern": "^[a-z]+$"},
        "nothing": {"type": "string", "nullable": True},
        "at": {"type": "string", "format": "date-time"},
        "share": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "string", "default": "d"}}},
        "labels": {"type": "object", "additionalProperties": TEXT, "maxProperties": 2},
        "tags": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set", "maxItems": 3, "minItems": 1},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["id", "kind"],
            "items": {"type": "object", "properties": {"id": TEXT, "kind": {**TEXT, "default": "k"}, "x": TEXT}},
        },
    },
}
DOCUMENT = {"type": "object", "properties": {"spec": SPEC}}
CUSTOM = compile_schema(DOCUMENT)
BUILT_IN = compile_schema(DOCUMENT, Dialect.BUILT_IN)
WHOLE = {"name": "n", "mode": "A", "nested": {"deep": "d"}}


def walk(spec: Any, old: Any = None, check: Any = CUSTOM) -> tuple[Any, Findings]:
    out = Findings()
    return check({"spec": spec}, None if old is None else {"spec": old}, None, "", out)["spec"], out


def causes_of(spec: Any) -> list[Cause]:
    return walk(spec)[1].causes


def test_a_complete_document_comes_back_as_the_same_object() -> None:
    document = {"spec": WHOLE}
    assert CUSTOM(document, None, None, "", Findings()) is document


def test_defaults_are_filled_in_a_copy() -> None:
    given = {"name": "n"}
    result, out = walk(given)
    assert result == WHOLE
    assert given == {"name": "n"}
    assert not out.causes


def test_a_default_is_completed_by_the_defaults_below_it() -> None:
    assert walk({"name": "n"})[0]["nested"] == {"deep": "d"}


def test_unknown_fields_are_pruned_and_named() -> None:
    parts = [{"id": "1", "kind": "k"}, {"id": "2", "kind": "k", "colour": {"deep": 1}}]
    given = {**WHOLE, "tint": 1, "parts": parts}
    result, out = walk(given)
    assert result["parts"] == [parts[0], {"id": "2", "kind": "k"}]
    assert result["parts"][0] is parts[0]
    assert "tint" not in result
    assert "tint" in given
    assert out.unknown == ["spec.tint", "spec.parts[1].colour"]


def test_what_must_be_preserved_is_preserved() -> None:
    free = {"any": {"thing": [1]}}
    assert walk({**WHOLE, "free": free})[0]["free"] is free


def test_nulls_become_defaults_or_nothing_unless_they_are_allowed() -> None:
    result, out = walk({**WHOLE, "mode": None, "word": None, "nothing": None})
    assert result == {**WHOLE, "nothing": None}
    assert not out.causes


def test_what_is_the_same_object_as_before_is_not_looked_at() -> None:
    bad_parts = [{"id": 5}]
    bad_labels = {"a": 1}
    old = {**WHOLE, "parts": bad_parts, "labels": bad_labels}
    result, out = walk({**old, "size": 3}, old)
    assert not out.causes
    assert result["parts"] is bad_parts


def test_items_that_were_in_the_old_list_are_not_looked_at_wherever_they_are_now() -> None:
    known = {"id": 5}
    result, out = walk({**WHOLE, "parts": [{"id": "new"}, known]}, {**WHOLE, "parts": [known]})
    assert not out.causes
    assert result["parts"][1] is known
    assert result["parts"][0] == {"id": "new", "kind": "k"}


@pytest.mark.parametrize(
    ("spec", "reason", "field", "message"),
    [
        ("x", "FieldValueTypeInvalid", "spec", 'Invalid value: "string": spec in body must be of type object: "string"'),
        ({}, "FieldValueRequired", "spec.name", "Required value"),
        ({**WHOLE, "name": 5}, "FieldValueTypeInvalid", "spec.name", 'Invalid value: "integer": spec.name in body must be of type string: "integer"'),
        ({**WHOLE, "mode": "C"}, "FieldValueNotSupported", "spec.mode", 'Unsupported value: "C": supported values: "A", "B"'),
        ({**WHOLE, "size": -1}, "FieldValueInvalid", "spec.size", "Invalid value: -1: spec.size in body should be greater than or equal to 0"),
        ({**WHOLE, "size": 10}, "FieldValueInvalid", "spec.size", "Invalid value: 10: spec.size in body should be less than or equal to 9"),
        ({**WHOLE, "size": True}, "FieldValueTypeInvalid", "spec.size", 'Invalid value: "": spec.size in body must be of type int32: ""'),
        ({**WHOLE, "short": "x"}, "FieldValueInvalid", "spec.short", 'Invalid value: "x": spec.short in body should be at least 2 chars long'),
        ({**WHOLE, "short": "long"}, "FieldValueTooLong", "spec.short", "Too long: may not be more than 3 bytes"),
        ({**WHOLE, "word": "a\n"}, "FieldValueInvalid", "spec.word", "Invalid value: \"a\\n\": spec.word in body should match '^[a-z]+$'"),
        ({**WHOLE, "at": "now"}, "FieldValueTypeInvalid", "spec.at", 'Invalid value: "now": spec.at in body must be of type date-time: "now"'),
        ({**WHOLE, "share": []}, "FieldValueTypeInvalid", "spec.share", 'Invalid value: "array": spec.share in body must be of type integer,string: "array"'),
        ({**WHOLE, "labels": {"a": 1}}, "FieldValueTypeInvalid", "spec.labels.a", 'Invalid value: "integer": spec.labels.a in body must be of type string: "integer"'),
        ({**WHOLE, "labels": {"a": "", "b": "", "c": ""}}, "FieldValueTooMany", "spec.labels", "Too many: 3: must have at most 2 items"),
        ({**WHOLE, "tags": []}, "FieldValueInvalid", "spec.tags", "Invalid value: 0: spec.tags in body should have at least 1 items"),
        ({**WHOLE, "tags": list("abcd")}, "FieldValueTooMany", "spec.tags", "Too many: 4: must have at most 3 items"),
        ({**WHOLE, "tags": ["a", "b", "a"]}, "FieldValueDuplicate", "spec.tags[2]", 'Duplicate value: "a"'),
        ({**WHOLE, "tags": ["a", None]}, "FieldValueTypeInvalid", "spec.tags[1]", 'Invalid value: "null": spec.tags[1] in body must be of type string: "null"'),
        ({**WHOLE, "parts": [{"id": "1"}, {"id": "1", "kind": "k"}]}, "FieldValueDuplicate", "spec.parts[1]", 'Duplicate value: {"id":"1","kind":"k"}'),
    ],
)  # fmt: skip
def test_each_violation_in_its_words(spec: Any, reason: str, field: str, message: str) -> None:
    assert causes_of(spec) == [Cause(reason, message, field)]


def test_the_third_of_three_equal_items_is_not_told_again() -> None:
    assert [cause.field for cause in causes_of({**WHOLE, "tags": ["a", "a", "a"]})] == ["spec.tags[1]"]


def test_a_number_beyond_its_format() -> None:
    assert causes_of({**WHOLE, "size": 2**31})[0] == Cause(
        "FieldValueInvalid", 'Invalid value: "": Checked value must be of type integer with format int32 in spec.size', "<nil>"
    )  # fmt: skip


def test_whole_floats_become_integers() -> None:
    assert walk({**WHOLE, "size": 3.0})[0]["size"] == 3
    assert type(walk({**WHOLE, "share": 3.0})[0]["share"]) is int


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("2026-01-01T00:00:00Z", True),
        ("2026-01-01t00:00:00.123z", True),
        ("2026-01-01T00:00:00+02:00", True),
        ("2026-02-30T00:00:00Z", False),
        ("2026-01-01T24:00:00Z", False),
        ("2026-01-01T00:00:00", False),
        ("2026-01-01", False),
        ("", False),
    ],
)
def test_times(text: str, fine: bool) -> None:
    assert (causes_of({**WHOLE, "at": text}) == []) is fine


def test_built_in_kinds_stop_at_the_first_value_that_go_cannot_hold() -> None:
    out = Findings("Thing")
    BUILT_IN({"spec": {"name": 5, "size": "x"}}, None, None, "", out)
    assert out.undecodable == "json: cannot unmarshal number into Go struct field ThingSpec.spec.name of type string"


def test_built_in_kinds_take_an_empty_string_for_none() -> None:
    result, out = walk({"name": "", "mode": ""}, check=BUILT_IN)
    assert result["mode"] == "A"
    assert out.causes == [Cause("FieldValueRequired", "Required value", "spec.name")]
