from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.controlplane.apiserver.request import RequestInfo, parse_query, parse_request, truth
from sandpool.controlplane.apiserver.routes import Routes

ROUTES = Routes()
CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1"


def parsed(method: str, target: str) -> RequestInfo:
    path, _, query = target.partition("?")
    return parse_request(method, path, parse_query(query.encode()), ROUTES)


@pytest.mark.parametrize(
    ("method", "target", "verb", "namespace", "plural", "name", "subresource"),
    [
        ("GET", "/api/v1/pods", "list", "", "pods", "", ""),
        ("GET", "/api/v1/pods?watch=True", "watch", "", "pods", "", ""),
        ("GET", "/api/v1/pods?watch=false", "list", "", "pods", "", ""),
        ("GET", "/api/v1/pods?watch=0", "list", "", "pods", "", ""),
        ("GET", "/api/v1/pods?watch", "watch", "", "pods", "", ""),
        ("GET", "/api/v1/namespaces/a/pods/b", "get", "a", "pods", "b", ""),
        ("HEAD", "/api/v1/namespaces/a/pods/b", "get", "a", "pods", "b", ""),
        ("GET", "/api/v1/namespaces/a/pods/b?watch=1", "get", "a", "pods", "b", ""),
        ("GET", "/api/v1/namespaces/a/pods/b/log", "get", "a", "pods", "b", "log"),
        ("POST", f"{CLAIMS}/namespaces/a/sandboxclaims", "create", "a", "sandboxclaims", "", ""),
        ("PUT", f"{CLAIMS}/namespaces/a/sandboxclaims/b", "update", "a", "sandboxclaims", "b", ""),
        ("PATCH", f"{CLAIMS}/namespaces/a/sandboxclaims/b/status", "patch", "a", "sandboxclaims", "b", "status"),
        ("DELETE", f"{CLAIMS}/namespaces/a/sandboxclaims", "deletecollection", "a", "sandboxclaims", "", ""),
        ("DELETE", f"{CLAIMS}/namespaces/a/sandboxclaims/b", "delete", "a", "sandboxclaims", "b", ""),
        ("GET", "/api/v1/namespaces", "list", "", "namespaces", "", ""),
        ("GET", "/api/v1/namespaces/a", "get", "a", "namespaces", "a", ""),
        ("GET", "/api/v1/namespaces/a/", "get", "a", "namespaces", "a", ""),
        ("PUT", "/api/v1/namespaces/a/finalize", "update", "a", "namespaces", "a", "finalize"),
        ("PATCH", "/api/v1/namespaces/a/status", "patch", "a", "namespaces", "a", "status"),
        ("GET", "/api/v1/nodes/n", "get", "", "nodes", "n", ""),
    ],
)
def test_a_resource(
    method: str, target: str, verb: str, namespace: str, plural: str, name: str, subresource: str
) -> None:
    info = parsed(method, target)
    assert (info.verb, info.namespace, info.plural, info.name, info.subresource) == (
        verb, namespace, plural, name, subresource,
    )  # fmt: skip
    assert info.route is not None
    assert info.route.resource.plural == plural


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/pods/x",  # a namespaced object outside of any namespace
        "/api/v1/namespaces/a/namespaces",  # a kind without namespaces inside one
        "/api/v1/namespaces/a/namespaces/a",
        "/api/v1/namespaces/a/nodes",
        "/api/v1/namespaces//pods",
        "/api/v1/namespaces/a/pods/b/log/more",
        "/api/v1/deployments",
        "/apis/agents.x-k8s.io/v1/sandboxes",
        "/apis/apps/v1/deployments",
    ],
)
def test_what_is_not_served_has_no_route(path: str) -> None:
    info = parsed("GET", path)
    assert info.route is None
    assert info.plural


@pytest.mark.parametrize("path", ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/version", "", "//"])
def test_no_resource(path: str) -> None:
    info = parsed("GET", path)
    assert (info.verb, info.plural, info.route) == ("get", "", None)


def test_of_a_repeated_parameter_the_first_counts() -> None:
    assert parse_query(b"a=1&a=2&b=x%3Dy+z&c&=d&%63=late") == {"a": "1", "b": "x=y z", "c": ""}


def test_truth() -> None:
    assert [truth({"x": value}, "x") for value in ("", "1", "true", "True", "maybe", "0", "false", "FALSE")] == [
        True, True, True, True, True, False, False, False,
    ]  # fmt: skip
    assert not truth({}, "x")


@given(st.text(max_size=60), st.binary(max_size=60))
def test_anything_can_be_parsed(path: str, query: bytes) -> None:
    info = parse_request("GET", "/" + path, parse_query(query), ROUTES)
    assert info.verb in {"get", "list", "watch"}
