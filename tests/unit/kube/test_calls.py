from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from sandpool.kube.api import Preconditions, Propagation
from sandpool.kube.calls import (
    create_call,
    delete_call,
    get_call,
    list_call,
    patch_call,
    watch_call,
)
from sandpool.kube.errors import BadRequest
from sandpool.model.core import Namespace
from sandpool.model.kinds import NAMESPACES, PODS, SANDBOXES
from sandpool.model.metadata import Metadata, Revision, Uid
from sandpool.model.patches import json_patch, merge_patch


def query(target: str) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(urlsplit(target).query, strict_parsing=True).items()}


def test_get_asks_for_the_newest() -> None:
    call = get_call(SANDBOXES, "a", "team")
    assert (call.method, call.target) == ("GET", "/apis/agents.x-k8s.io/v1beta1/namespaces/team/sandboxes/a")
    assert not call.writes


def test_list_everywhere_and_consistently() -> None:
    assert list_call(PODS, "", "", "", 0, "").target == "/api/v1/pods"


def test_list_with_everything() -> None:
    call = list_call(PODS, "team", "a in (b,c),!d", "spec.nodeName=n", 50, "tok/en==")
    assert call.target.startswith("/api/v1/namespaces/team/pods?")
    assert " " not in call.target
    assert query(call.target) == {
        "labelSelector": "a in (b,c),!d",
        "fieldSelector": "spec.nodeName=n",
        "limit": "50",
        "continue": "tok/en==",
    }


def test_watch_from_a_revision() -> None:
    call = watch_call(PODS, "", "", "", Revision(7), False, None)
    assert query(call.target) == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "7"}


def test_watch_never_asks_for_revision_zero() -> None:
    assert "resourceVersion" not in query(watch_call(PODS, "", "", "", Revision(0), False, None).target)


def test_a_streaming_list() -> None:
    call = watch_call(PODS, "", "l=1", "f=2", None, True, 299.6)
    assert query(call.target) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "labelSelector": "l=1",
        "fieldSelector": "f=2",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "timeoutSeconds": "300",
    }


def test_create_from_a_mapping_fills_in_what_the_resource_knows() -> None:
    call = create_call(PODS, "", {"metadata": {"name": "a", "namespace": "team"}})
    assert (call.method, call.target) == ("POST", "/api/v1/namespaces/team/pods")
    assert json.loads(call.body or b"") == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "team"},
    }


def test_create_from_an_object() -> None:
    call = create_call(NAMESPACES, "", Namespace(metadata=Metadata(name="team")))
    assert call.target == "/api/v1/namespaces"
    assert json.loads(call.body or b"")["kind"] == "Namespace"


def test_create_somewhere() -> None:
    with pytest.raises(BadRequest, match="namespace is empty"):
        create_call(PODS, "", {"metadata": {"name": "a"}})


def test_patches_say_their_dialect() -> None:
    merge = patch_call(PODS, "a", "team", merge_patch({"metadata": {"labels": {"x": None}}}))
    assert (merge.method, merge.content_type) == ("PATCH", "application/merge-patch+json")
    assert json.loads(merge.body or b"") == {"metadata": {"labels": {"x": None}}}
    status = patch_call(PODS, "a", "team", json_patch([{"op": "remove", "path": "/status"}]), "status")
    assert status.target == "/api/v1/namespaces/team/pods/a/status"
    assert status.content_type == "application/json-patch+json"


def test_delete_with_everything() -> None:
    tests = Preconditions(uid=Uid("u"), revision=Revision(9))
    call = delete_call(PODS, "a", "team", tests, Propagation.FOREGROUND, 0)
    assert json.loads(call.body or b"") == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u", "resourceVersion": "9"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }


def test_delete_with_nothing() -> None:
    call = delete_call(NAMESPACES, "team", "", None, None, None)
    assert json.loads(call.body or b"") == {"kind": "DeleteOptions", "apiVersion": "v1"}
    assert call.target == "/api/v1/namespaces/team"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../secrets", "a%2fb", "\ud800"])
def test_no_name_reaches_another_path(name: str) -> None:
    with pytest.raises(BadRequest):
        get_call(PODS, name, "team")
    if name:
        with pytest.raises(BadRequest):
            get_call(PODS, "a", name)


@pytest.mark.parametrize(
    ("name", "segment"), [("a b", "a%20b"), ("a?x=1", "a%3Fx%3D1"), ("a#b", "a%23b"), ("é", "%C3%A9")]
)
def test_strange_names_are_encoded(name: str, segment: str) -> None:
    assert get_call(PODS, name, "team").target == f"/api/v1/namespaces/team/pods/{segment}"


def test_an_object_of_a_namespaced_kind_is_somewhere() -> None:
    with pytest.raises(BadRequest, match="namespace is empty"):
        get_call(PODS, "a", "")
