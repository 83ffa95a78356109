"""Whatever is sent, admission answers: with an object that it would admit again unchanged, or with an error of ours."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandpool.controlplane.admission.admit import Admitted, FieldValidation, admit
from sandpool.kube.errors import ApiError, BadRequest, Invalid
from sandpool.model.kinds import ALL
from sandpool.model.resource import Resource
from sandpool.model.schemas import structural
from support.api.admission_golden import cases

_GIVEN = {"uid": "0", "resourceVersion": "7", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
_BASES = {case.kind: case.base for case in cases() if case.name.startswith("good")}
_RESOURCES = {resource.kind: resource for resource in ALL}

_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["", "a", "A B", "1Gi", "None", "2026-01-01T00:00:00Z", "x" * 300])
)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


@st.composite
def changed(draw: st.DrawFn, document: Any, schema: dict[str, Any]) -> Any:
    """The document with one place changed, most often a place that the schema knows."""
    if schema.get("type") == "array" and draw(st.integers(0, 9)):
        items = document if isinstance(document, list) and document else [{}]
        index = draw(st.integers(0, len(items) - 1))
        fresh = draw(changed(items[index], schema.get("items") or {}))
        return [fresh if i == index else item for i, item in enumerate(items)]
    properties = schema.get("properties") or {}
    if properties and draw(st.integers(0, 9)):
        name = draw(st.sampled_from(sorted(properties)))
        before = document if isinstance(document, dict) else {}
        return {**before, name: draw(changed(before.get(name), properties[name]))}
    return draw(_values)


def outcome(resource: Resource[Any], new: Any, old: Any, **options: Any) -> Admitted | ApiError:
    try:
        return admit(resource, new, old, **options)
    except (Invalid, BadRequest) as error:
        return error


def check_create(kind: str, data: st.DataObject) -> None:
    resource: Resource[Any] = _RESOURCES[kind]
    document = data.draw(changed(_BASES[kind], structural(resource)))
    if not isinstance(document, dict):
        return
    text = msgspec.json.encode(document)
    answer = outcome(resource, document, None, validation=data.draw(st.sampled_from(FieldValidation)))
    assert msgspec.json.encode(document) == text
    if isinstance(answer, ApiError):
        return
    again = admit(resource, answer.body, None)
    assert again.body == answer.body
    assert not [warning for warning in again.warnings if "unknown" in warning]


def check_update(kind: str, data: st.DataObject) -> None:
    resource: Resource[Any] = _RESOURCES[kind]
    created = admit(resource, _BASES[kind], None).body
    old = {**created, "metadata": {**created["metadata"], **_GIVEN}}
    new = data.draw(changed(old, structural(resource)))
    if not isinstance(new, dict):
        return
    before = msgspec.json.encode([old, new])
    subresource = data.draw(st.sampled_from(["", "status"])) if resource.has_status else ""
    answer = outcome(resource, new, old, subresource=subresource, patched=data.draw(st.booleans()))
    assert msgspec.json.encode([old, new]) == before
    if isinstance(answer, ApiError):
        return
    body = answer.body
    assert body["metadata"]["uid"] == "0"
    assert body["metadata"]["creationTimestamp"] == _GIVEN["creationTimestamp"]
    if subresource:
        assert {**body, "status": 0} == {**old, "status": 0}
    elif resource.has_status:
        assert body.get("status") == old.get("status")


_kinds = st.sampled_from(sorted(_RESOURCES))


@settings(max_examples=150, deadline=None)
@given(kind=_kinds, data=st.data())
def test_any_document_is_admitted_or_refused(kind: str, data: st.DataObject) -> None:
    check_create(kind, data)


@settings(max_examples=150, deadline=None)
@given(kind=_kinds, data=st.data())
def test_any_update_is_admitted_or_refused(kind: str, data: st.DataObject) -> None:
    check_update(kind, data)


@pytest.mark.long
@pytest.mark.parametrize("kind", sorted(_RESOURCES))
@pytest.mark.parametrize("check", [check_create, check_update])
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_many_documents_of_each_kind(check: Any, kind: str, data: st.DataObject) -> None:
    check(kind, data)


@pytest.mark.parametrize("kind", sorted(_RESOURCES))
def test_an_update_that_changes_nothing_returns_the_old_object_untouched(kind: str) -> None:
    resource: Resource[Any] = _RESOURCES[kind]
    created = admit(resource, _BASES[kind], None).body
    old = {**created, "metadata": {**created["metadata"], **_GIVEN}}
    assert admit(resource, old, old).body is old
    copied = msgspec.json.decode(msgspec.json.encode(old))
    assert admit(resource, copied, old).body == old
