from __future__ import annotations

import json
from typing import Any

import pytest

from sandpool.kube.answers import read_deleted, read_object, read_page, read_status
from sandpool.kube.errors import (
    AlreadyExists,
    ApiError,
    Cause,
    Conflict,
    Gone,
    Invalid,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unreadable,
)
from sandpool.model.kinds import NAMESPACES, PODS


def a_status(code: int, reason: str, **more: Any) -> bytes:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m", "reason": reason, "code": code}
    return json.dumps(body | more).encode()


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
    ],
)
def test_a_refusal_is_told_by_its_reason(code: int, reason: str, kind: type[ApiError]) -> None:
    error = read_status(code, a_status(code, reason))
    assert type(error) is kind
    assert (error.code, error.word, error.message) == (code, reason, "m")


def test_causes_and_details() -> None:
    causes = [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.x"}]
    error = read_status(422, a_status(422, "Invalid", details={"name": "a", "kind": "pods", "causes": causes}))
    assert error.causes == (Cause("FieldValueRequired", "Required value", "spec.x"),)
    assert error.details == {"name": "a", "kind": "pods"}


@pytest.mark.parametrize(("inside", "header", "wanted"), [(7, None, 7), (7, 3, 7), (None, 3, 3), (None, None, None)])
def test_when_to_come_back(inside: int | None, header: int | None, wanted: int | None) -> None:
    details = {} if inside is None else {"details": {"retryAfterSeconds": inside}}
    error = read_status(429, a_status(429, "TooManyRequests", **details), header)
    assert isinstance(error, TooManyRequests)
    assert error.retry_after == wanted


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>no</html>",
        b"[]",
        b"null",
        b'{"message":1}',
        b"\xff",
        b'{"kind":"Status","details":"x"}',
        b'{"kind":"X"}',
    ],
)
def test_what_is_no_status_counts_by_its_code(body: bytes) -> None:
    error = read_status(503, body, 4)
    assert type(error) is Unavailable
    assert error.retry_after == 4
    assert "503" in error.message
    assert type(read_status(401, body)) is Unauthorized
    assert read_status(418, body).code == 418


def test_a_page() -> None:
    items = [{"metadata": {"name": name, "resourceVersion": "3"}, "spec": {"containers": []}} for name in ("a", "b")]
    metadata = {"resourceVersion": "9", "continue": "more", "remainingItemCount": 4}
    page = read_page(PODS, json.dumps({"kind": "PodList", "metadata": metadata, "items": items}).encode())
    assert [item.metadata.name for item in page.items] == ["a", "b"]
    assert (page.revision, page.after, page.remaining) == (9, "more", 4)


def test_a_page_without_items() -> None:
    assert read_page(PODS, b'{"metadata":{"resourceVersion":"9"},"items":null}').items == ()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"metadata":{"resourceVersion":"x"}}', b'{"metadata":{},"items":[]}']
)
def test_a_page_that_is_none(body: bytes) -> None:
    with pytest.raises(Unreadable, match="pods"):
        read_page(PODS, body)


@pytest.mark.parametrize("body", [b"", b"{", b'{"metadata":[]}', b"\xff\xff"])
def test_an_object_that_is_none(body: bytes) -> None:
    with pytest.raises(Unreadable, match="pods"):
        read_object(PODS, body)


NOW = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("metadata", "gone"),
    [
        ({}, True),  # the last state of what was deleted at once
        ({"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0}, True),  # a pod without grace
        ({"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 30}, False),
        ({"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0, "finalizers": ["x/y"]}, False),
        ({"finalizers": ["x/y"]}, True),
    ],
)
def test_what_a_delete_left(metadata: dict[str, Any], gone: bool) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"} | metadata, "spec": {"containers": []}}
    left = read_deleted(PODS, json.dumps(body).encode())
    assert (left is None) is gone


def test_a_namespace_is_marked_without_a_grace_period() -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "deletionTimestamp": NOW}}
    left = read_deleted(NAMESPACES, json.dumps(body).encode())
    assert left is not None
    assert left.metadata.leaving


def test_a_delete_that_answers_with_a_status() -> None:
    assert read_deleted(PODS, b'{"kind":"Status","apiVersion":"v1","status":"Success","details":{"uid":"u"}}') is None
