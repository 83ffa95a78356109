from __future__ import annotations

import pytest

from sandpool.controlplane.apiserver.auth import (
    ADMIN,
    Attributes,
    User,
    allowed,
    authorize,
    is_public,
    service_account,
)
from sandpool.controlplane.apiserver.request import parse_query, parse_request
from sandpool.controlplane.apiserver.routes import Routes
from sandpool.kube.errors import Forbidden

ROUTES = Routes()
ALICE = service_account("team", "alice", "u1", "t1")
CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1"


def words(method: str, target: str) -> str:
    path, _, query = target.partition("?")
    with pytest.raises(Forbidden) as caught:
        authorize(ALICE, parse_request(method, path, parse_query(query.encode()), ROUTES))
    return caught.value.message


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{CLAIMS}/namespaces/team/sandboxclaims"),
        ("POST", f"{CLAIMS}/namespaces/team/sandboxclaims"),
        ("DELETE", f"{CLAIMS}/namespaces/team/sandboxclaims"),
        ("PATCH", f"{CLAIMS}/namespaces/team/sandboxclaims/a/status"),
        ("GET", "/api/v1/namespaces/team/secrets/a"),
        ("POST", "/api/v1/namespaces/team/serviceaccounts/alice/token"),
        ("GET", "/api/v1/namespaces/team"),
        ("GET", "/api/v1/namespaces/team/resourcequotas"),
        ("GET", "/api/v1/namespaces/team/resourcequotas/a/status"),
        ("GET", "/api/v1/namespaces/team/pods/a/status"),
        ("PATCH", "/api/v1/namespaces/team/pods/a"),
        ("POST", "/api/v1/namespaces/team/pods/a/eviction"),
        ("GET", "/api"),
        ("GET", "/apis/apps/v1"),
        ("GET", "/openapi/v3/api/v1"),
        ("GET", "/version"),
        ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("GET", "/sandpool/stories/team/claim/c"),
    ],
)
def test_a_service_account_may(method: str, path: str) -> None:
    authorize(ALICE, parse_request(method, path, {}, ROUTES))


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        (
            "GET",
            "/api/v1/namespaces/other/pods",
            'pods is forbidden: User "system:serviceaccount:team:alice" cannot list resource "pods" '
            'in API group "" in the namespace "other"',
        ),
        (
            "GET",
            f"{CLAIMS}/sandboxclaims?watch=1",
            'sandboxclaims.extensions.agents.x-k8s.io is forbidden: User "system:serviceaccount:team:alice" cannot watch '
            'resource "sandboxclaims" in API group "extensions.agents.x-k8s.io" at the cluster scope',
        ),
        (
            "GET",
            "/api/v1/namespaces/other/pods/p/log",
            'pods "p" is forbidden: User "system:serviceaccount:team:alice" cannot get resource "pods/log" '
            'in API group "" in the namespace "other"',
        ),
        (
            "DELETE",
            "/api/v1/namespaces/team",
            'namespaces "team" is forbidden: User "system:serviceaccount:team:alice" cannot delete resource "namespaces" '
            'in API group "" in the namespace "team"',
        ),
        (
            "GET",
            "/metrics",
            'forbidden: User "system:serviceaccount:team:alice" cannot get path "/metrics"',
        ),
    ],
)
def test_a_service_account_may_not(method: str, target: str, expected: str) -> None:
    assert words(method, target) == expected


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/namespaces"),
        ("PUT", "/api/v1/namespaces/team/finalize"),
        ("PATCH", "/api/v1/namespaces/team"),
        ("POST", "/api/v1/namespaces/team/resourcequotas"),
        ("PUT", "/api/v1/namespaces/team/resourcequotas/a"),
        ("PATCH", "/api/v1/namespaces/team/resourcequotas/a"),
        ("PATCH", "/api/v1/namespaces/team/resourcequotas/a/status"),
        ("DELETE", "/api/v1/namespaces/team/resourcequotas/a"),
        ("DELETE", "/api/v1/namespaces/team/resourcequotas"),
        ("PATCH", "/api/v1/namespaces/team/pods/a/status"),
        ("PUT", "/api/v1/namespaces/team/persistentvolumeclaims/a/status"),
        ("POST", "/api/v1/namespaces/team/pods/a/binding"),
        ("POST", "/apis/node.k8s.io/v1/runtimeclasses"),
        ("PATCH", "/apis/node.k8s.io/v1/runtimeclasses/gvisor"),
        ("GET", "/api/v1/namespaces/other"),
        ("GET", "/api/v1/namespaces/team/namespaces/other"),
        ("GET", "/api/v1/nodes"),
        ("GET", "/apis/node.k8s.io/v1/runtimeclasses"),
        ("POST", "/sandpool/restore"),
        ("GET", "/sandpool/stories/other/claim/c"),
        ("GET", "/sandpool/stories/team"),
        ("GET", "/sandpool/stories/team/claim/c/d"),
        ("POST", "/sandpool/stories/team/claim/c"),
        ("GET", "/apiserver"),
    ],
)
def test_nor_anything_beyond_its_namespace(method: str, path: str) -> None:
    assert "forbidden" in words(method, path)


def test_a_user_of_no_namespace_reads_no_story() -> None:
    nobody = User("somebody", "u", ("system:authenticated",))
    assert not allowed(nobody, Attributes("get", "/sandpool/stories//claim/c"))
    assert not allowed(nobody, Attributes("get", "/sandpool/stories/team/claim/c"))


def test_the_admin_may_everything() -> None:
    assert allowed(ADMIN, Attributes("delete", resource="nodes", name="n"))
    assert allowed(ADMIN, Attributes("get", "/metrics"))


def test_details_name_the_resource() -> None:
    with pytest.raises(Forbidden) as caught:
        authorize(ALICE, parse_request("GET", f"{CLAIMS}/namespaces/x/sandboxclaims/c", {}, ROUTES))
    assert caught.value.details == {"name": "c", "group": "extensions.agents.x-k8s.io", "kind": "sandboxclaims"}


def test_only_health_and_version_are_open() -> None:
    assert [path for path in ("/healthz", "/livez/ping", "/readyz", "/version", "/metrics", "/api", "/healthzz") if is_public(path)] == [
        "/healthz", "/livez/ping", "/readyz", "/version",
    ]  # fmt: skip
