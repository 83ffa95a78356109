"""What a cluster did, from pages of metrics and from an audit log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandpool.load.audit import AuditedRequest, AuditLog
from sandpool.load.counts import FAMILIES, Page, count, count_audit, increase, is_aside, kind, read_samples
from sandpool.load.errors import LoadError
from sandpool.telemetry.metrics import Metrics

KUBE = """
# HELP apiserver_request_total requests
apiserver_request_total{code="201",component="apiserver",group="extensions.agents.x-k8s.io",resource="sandboxclaims",subresource="",verb="POST"} 300
apiserver_request_total{code="200",group="agents.x-k8s.io",resource="sandboxes",subresource="status",verb="PATCH"} 250
apiserver_request_total{code="409",group="agents.x-k8s.io",resource="sandboxes",subresource="",verb="PUT"} 5
apiserver_request_total_other 7
process_cpu_seconds_total 12.5
"""
GO = """
rest_client_requests_total{code="200",host="h",method="PATCH"} 900
rest_client_requests_total{code="201",host="h",method="POST"} 300
rest_client_requests_total{code="409",host="h",method="PUT"} 16
rest_client_requests_total{code="404",host="h",method="GET"} 2
controller_runtime_reconcile_total{controller="sandboxclaim",result="success"} 1200
controller_runtime_reconcile_total{controller="sandbox",result="success"} 9000
"""


def page(text: str, before: str = "", source: str = "page") -> Page:
    return Page(source, read_samples(before, FAMILIES), read_samples(text, FAMILIES))


def ours() -> Metrics:
    metrics = Metrics()
    metrics.declare_controller("claim")
    return metrics


def test_samples_are_read_with_their_labels_and_nothing_else() -> None:
    found = read_samples(
        'a_total{x="1",y="q\\"uo\\\\te\\n"} 3\nb 2\na_total 1 1700000000\n# a_total 9\na 1e3\nbad{ 1', ["a_total", "a"]
    )
    assert found == {"a_total": {(("x", "1"), ("y", 'q"uo\\te\n')): 3.0, (): 1.0}, "a": {(): 1000.0}}


def test_an_increase_starts_over_with_the_process() -> None:
    before, after = read_samples('a 5\na{x="1"} 7', ["a"]), read_samples('a 8\na{x="1"} 2', ["a"])
    assert increase(before, after, "a") == {(): 3.0, (("x", "1"),): 2.0}
    assert increase(before, after, "b") is None


def test_our_controllers_are_counted_by_kind() -> None:
    metrics = ours()
    metrics.called("patch", "sandboxes.agents.x-k8s.io", "ok", 0.1)
    before = metrics.expose().decode()
    for _ in range(3):
        metrics.called("patch", "sandboxes.agents.x-k8s.io", "ok", 0.1)
        metrics.called("patch_status", "sandboxclaims.extensions.agents.x-k8s.io", "ok", 0.1)
        metrics.reconciles.labels("claim", "done").inc()
    metrics.called("create", "events", "ok", 0.1)
    metrics.called("patch", "sandboxes.agents.x-k8s.io", "Conflict", 0.1)
    metrics.called("get", "sandboxes.agents.x-k8s.io", "NotFound", 0.1)
    metrics.served("create", "sandboxclaims", 201, 0.1)
    metrics.committed(8, 0.1)
    found = count([page(metrics.expose().decode(), before, "API server")])
    assert found.writes["controllers"] == {"patch sandboxes": 3, "patch sandboxclaims/status": 3, "create events": 1}
    assert found.writes["over the wire"] == {"create sandboxclaims": 1}
    assert (found.conflicts, found.not_found, found.reconciles, found.stored) == (1, 1, 3, 8)
    assert found.controller_writes == 6, "events are shown and not counted"
    assert found.reasons == {}


def test_a_controller_that_did_nothing_has_counted_nothing_rather_than_being_unknown() -> None:
    metrics = ours()
    metrics.called("patch", "sandboxes.agents.x-k8s.io", "ok", 0.1)
    text = metrics.expose().decode()
    found = count([page(text, text)])
    assert (found.controller_writes, found.conflicts, found.reconciles) == (0, 0, 0)


def test_a_go_controller_is_counted_from_its_own_page() -> None:
    found = count([page(KUBE), page(GO, source="go")])
    assert found.writes["controllers"] == {"patch": 900, "create": 300}
    assert found.writes["everybody"] == {"create sandboxclaims": 300, "patch sandboxes/status": 250}
    assert (found.conflicts, found.not_found, found.reconciles) == (16, 2, 1200)
    assert found.source == "go"


def test_what_a_cluster_does_not_tell_is_not_known_and_says_why() -> None:
    found = count([page(KUBE)])
    assert (found.controller_writes, found.conflicts, found.not_found, found.reconciles) == (None, None, None, None)
    assert set(found.reasons) == {"writes", "conflicts", "not_found", "reconciles"}
    assert "--metrics" in found.reasons["reconciles"]
    assert count([], "403 on /metrics").reasons["writes"] == "403 on /metrics"


def test_kinds_are_named_alike_wherever_they_come_from() -> None:
    assert kind("patch_status", "sandboxes.agents.x-k8s.io") == kind("patch", "sandboxes/status")
    assert kind("post", "pods") == "create pods"
    assert is_aside("create events")
    assert not is_aside("patch sandboxes/status")


def entry(user: str, verb: str, resource: str, code: int = 200, sub: str = "", space: str = "load") -> str:
    about = {"resource": resource, "subresource": sub, "namespace": space, "name": "x"}
    said = {"kind": "Event", "stage": "ResponseComplete", "verb": verb, "user": {"username": user}, "objectRef": about}
    return json.dumps({**said, "responseStatus": {"code": code}}) + "\n"


def test_an_audit_log_knows_who_asked(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    path.write_text(entry("controller", "patch", "sandboxes") * 5)
    log = AuditLog(path)
    with path.open("a") as file:
        file.write(
            entry("controller", "patch", "sandboxes") * 2 + entry("controller", "patch", "sandboxclaims", sub="status")
        )
        file.write(entry("controller", "patch", "sandboxes", code=409) + entry("controller", "get", "pods", code=404))
        file.write(
            entry("admin", "create", "sandboxclaims", code=201)
            + entry("anybody", "patch", "pods", sub="status")
            + entry("system:node:n", "patch", "nodes")
        )
        file.write(entry("controller", "update", "leases", space="kube-system") + '{"verb": "half a li')
    found = count_audit(log.requests("load"), count([], "nothing"))
    assert found.writes == {
        "controllers": {"patch sandboxes": 2, "patch sandboxclaims/status": 1},
        "users": {"create sandboxclaims": 1},
        "system": {"patch pods/status": 1, "patch nodes": 1},
    }
    assert (found.conflicts, found.not_found, found.controller_writes) == (1, 1, 3)
    assert set(found.reasons) == {"reconciles"}


def test_an_audit_log_can_count_one_user_only(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    path.write_text("")
    log = AuditLog(path, "ours")
    path.write_text(entry("ours", "patch", "sandboxes") + entry("theirs", "patch", "sandboxes"))
    assert list(log.requests("load")) == [
        AuditedRequest("controllers", "patch", "sandboxes", 200),
        AuditedRequest("others", "patch", "sandboxes", 200),
    ]


def test_a_missing_or_broken_audit_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="--audit-log"):
        AuditLog(tmp_path / "absent")
    path = tmp_path / "audit"
    path.write_text("")
    log = AuditLog(path)
    path.write_text("nothing\n")
    with pytest.raises(LoadError, match="lines of JSON"):
        list(log.requests("load"))
