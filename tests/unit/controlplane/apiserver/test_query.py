from __future__ import annotations

from typing import Any

import pytest

from sandpool.controlplane.admission.admit import FieldValidation
from sandpool.controlplane.apiserver.query import delete_options, integer, list_query, watch_query, write_options
from sandpool.controlplane.objects.options import DeleteOptions, ListQuery, WatchQuery, WriteOptions
from sandpool.kube.api import Preconditions, Propagation
from sandpool.kube.errors import ApiError, BadRequest, Invalid
from sandpool.model.metadata import Revision, Uid


def test_nothing_asked_for() -> None:
    assert write_options({}, "CreateOptions") == WriteOptions()
    assert list_query({}) == ListQuery()
    assert watch_query({"watch": "1"}) == WatchQuery()
    assert delete_options({}, None) == DeleteOptions()


def test_writes() -> None:
    asked = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "kubectl"}
    assert write_options(asked, "CreateOptions") == WriteOptions(True, FieldValidation.STRICT)


@pytest.mark.parametrize(
    ("params", "kind", "message"),
    [
        ({"dryRun": "x"}, "CreateOptions", 'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]: supported values: "All"'),
        (
            {"fieldValidation": "x"},
            "UpdateOptions",
            'UpdateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "x": '
            'supported values: "", "Ignore", "Strict", "Warn"',
        ),
        (
            {"fieldManager": "a" * 129},
            "PatchOptions",
            'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than 128 bytes',
        ),
        ({"force": "true"}, "PatchOptions", 'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch'),
    ],
)  # fmt: skip
def test_bad_options_of_writes(params: dict[str, str], kind: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        write_options(params, kind)
    assert caught.value.message == message
    assert caught.value.details == {"group": "meta.k8s.io", "kind": kind}


def test_lists() -> None:
    asked = {
        "labelSelector": "a=b", "fieldSelector": "metadata.name=x", "limit": "5", "continue": "t", "resourceVersion": "7",
    }  # fmt: skip
    assert list_query(asked) == ListQuery("a=b", "metadata.name=x", 5, "t", Revision(7))
    assert list_query({"limit": "-1"}).limit == 0


@pytest.mark.parametrize(
    ("params", "status", "message"),
    [
        ({"limit": "abc"}, 400, 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ({"limit": "9" * 30}, 400, f'strconv.ParseInt: parsing "{"9" * 30}": value out of range'),
        ({"timeoutSeconds": "x"}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (
            {"resourceVersion": "abc"},
            400,
            'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax',
        ),
        (
            {"resourceVersionMatch": "Exact"},
            422,
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            {"sendInitialEvents": "true"},
            422,
            'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list',
        ),
    ],
)
def test_bad_options_of_lists(params: dict[str, str], status: int, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        list_query(params)
    assert (caught.value.code, caught.value.message) == (status, message)


def test_watches() -> None:
    streaming = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "True"}
    assert watch_query(streaming) == WatchQuery(initial=True, bookmarks=True)
    assert watch_query(streaming | {"sendInitialEvents": "false"}) == WatchQuery(skip_initial=True, bookmarks=True)


def test_bad_options_of_watches_come_together() -> None:
    with pytest.raises(Invalid) as caught:
        watch_query({"resourceVersionMatch": "Exact", "resourceVersion": "1"})
    assert caught.value.message == (
        'ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch '
        'unless sendInitialEvents is provided, resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"]'
    )
    with pytest.raises(Invalid, match="sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"):
        watch_query({"sendInitialEvents": "true"})


def test_deletes_by_query() -> None:
    asked = {"dryRun": "All", "gracePeriodSeconds": "3", "propagationPolicy": "Foreground"}
    assert delete_options(asked, None) == DeleteOptions(True, None, Propagation.FOREGROUND, 3)
    assert delete_options({"orphanDependents": "true"}, None).propagation is Propagation.ORPHAN
    assert delete_options({"orphanDependents": "false"}, None).propagation is Propagation.BACKGROUND


def test_deletes_by_body_which_wins() -> None:
    body = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u", "resourceVersion": "5"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }
    expected = DeleteOptions(False, Preconditions(Uid("u"), Revision(5)), Propagation.BACKGROUND, 0)
    assert delete_options({"dryRun": "All"}, body) == expected


def test_a_revision_that_cannot_exist_matches_nothing() -> None:
    options = delete_options({}, {"preconditions": {"resourceVersion": "banana"}})
    assert options.preconditions is not None
    assert options.preconditions.revision == -1


@pytest.mark.parametrize(
    ("params", "body", "words"),
    [
        ({"propagationPolicy": "x"}, None, 'supported values: "Foreground", "Background", "Orphan", "nil"'),
        ({"propagationPolicy": "Orphan", "orphanDependents": "1"}, None, "cannot be both set"),
        ({}, {"dryRun": ["x"]}, "supported values"),
        ({}, {"kind": "Pod", "apiVersion": "v1"}, 'no kind "Pod" is registered'),
        ({}, {"gracePeriodSeconds": "soon"}, "cannot unmarshal"),
        ({}, {"gracePeriodSeconds": True}, "cannot unmarshal"),
        ({}, {"preconditions": []}, "cannot unmarshal"),
        ({"gracePeriodSeconds": "1.5"}, None, "invalid syntax"),
    ],
)
def test_bad_options_of_deletes(params: dict[str, str], body: dict[str, Any] | None, words: str) -> None:
    with pytest.raises((BadRequest, Invalid), match=words):
        delete_options(params, body)


def test_integers_as_go_reads_them() -> None:
    assert [integer({"n": text}, "n") for text in ("", "7", "-7", "+7", "007")] == [None, 7, -7, 7, 7]
    for text in ("1_000", "٣", " 1", "-", "0x1"):
        with pytest.raises(BadRequest):
            integer({"n": text}, "n")
