"""The HTTP request that each verb of the Api becomes."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from sandpool.kube.api import Api, Call, Preconditions, Propagation
from sandpool.kube.errors import BadRequest
from sandpool.kube.requests import request_of
from sandpool.model.core import Namespace
from sandpool.model.kinds import NAMESPACES, PODS, SANDBOXES
from sandpool.model.metadata import Metadata, Revision, Uid
from sandpool.model.patches import json_patch, merge_patch


class Building(Api):
    """Its verbs return the request instead of making it."""

    def send(self, call: Call) -> Any:
        return request_of(call)

    def stream(self, call: Call) -> Any:
        return request_of(call)


api: Any = Building()


def query(target: str) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(urlsplit(target).query, strict_parsing=True).items()}


def test_get_asks_for_the_newest() -> None:
    call = api.get(SANDBOXES, "a", "team")
    assert (call.method, call.target) == ("GET", "/apis/agents.x-k8s.io/v1beta1/namespaces/team/sandboxes/a")
    assert not call.writes


def test_list_everywhere_and_consistently() -> None:
    assert api.list(PODS).target == "/api/v1/pods"


def test_list_with_everything() -> None:
    call = api.list(PODS, "team", labels="a in (b,c),!d", fields="spec.nodeName=n", limit=50, after="tok/en==")
    assert call.target.startswith("/api/v1/namespaces/team/pods?")
    assert " " not in call.target
    assert query(call.target) == {
        "labelSelector": "a in (b,c),!d",
        "fieldSelector": "spec.nodeName=n",
        "limit": "50",
        "continue": "tok/en==",
    }


def test_watch_from_a_revision() -> None:
    call = api.watch(PODS, since=Revision(7))
    assert query(call.target) == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "7"}


def test_watch_never_asks_for_revision_zero() -> None:
    assert "resourceVersion" not in query(api.watch(PODS, since=Revision(0)).target)


def test_a_streaming_list() -> None:
    call = api.watch(PODS, labels="l=1", fields="f=2", initial=True, timeout=299.6)
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
    call = api.create(PODS, {"metadata": {"name": "a", "namespace": "team"}})
    assert (call.method, call.target) == ("POST", "/api/v1/namespaces/team/pods")
    assert json.loads(call.body or b"") == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "team"},
    }


def test_create_from_an_object() -> None:
    call = api.create(NAMESPACES, Namespace(metadata=Metadata(name="team")))
    assert call.target == "/api/v1/namespaces"
    assert json.loads(call.body or b"")["kind"] == "Namespace"


def test_create_somewhere() -> None:
    with pytest.raises(BadRequest, match="namespace is empty"):
        api.create(PODS, {"metadata": {"name": "a"}})


def test_patches_say_their_dialect() -> None:
    merge = api.patch(PODS, "a", merge_patch({"metadata": {"labels": {"x": None}}}), "team")
    assert (merge.method, merge.content_type) == ("PATCH", "application/merge-patch+json")
    assert json.loads(merge.body or b"") == {"metadata": {"labels": {"x": None}}}
    status = api.patch_status(PODS, "a", json_patch([{"op": "remove", "path": "/status"}]), "team")
    assert status.target == "/api/v1/namespaces/team/pods/a/status"
    assert status.content_type == "application/json-patch+json"


def test_delete_with_everything() -> None:
    tests = Preconditions(uid=Uid("u"), revision=Revision(9))
    call = api.delete(PODS, "a", "team", preconditions=tests, propagation=Propagation.FOREGROUND, grace=0)
    assert json.loads(call.body or b"") == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u", "resourceVersion": "9"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }


def test_delete_with_nothing() -> None:
    call = api.delete(NAMESPACES, "team")
    assert json.loads(call.body or b"") == {"kind": "DeleteOptions", "apiVersion": "v1"}
    assert call.target == "/api/v1/namespaces/team"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../secrets", "a%2fb", "\ud800"])
def test_no_name_reaches_another_path(name: str) -> None:
    with pytest.raises(BadRequest):
        api.get(PODS, name, "team")
    if name:
        with pytest.raises(BadRequest):
            api.get(PODS, "a", name)


@pytest.mark.parametrize(
    ("name", "segment"), [("a b", "a%20b"), ("a?x=1", "a%3Fx%3D1"), ("a#b", "a%23b"), ("é", "%C3%A9")]
)
def test_strange_names_are_encoded(name: str, segment: str) -> None:
    assert api.get(PODS, name, "team").target == f"/api/v1/namespaces/team/pods/{segment}"


def test_an_object_of_a_namespaced_kind_is_somewhere() -> None:
    with pytest.raises(BadRequest, match="namespace is empty"):
        api.get(PODS, "a", "")
