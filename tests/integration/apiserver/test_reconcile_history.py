"""Reconcile history over HTTP: who may read whose, and what it looks like. A real server, real tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandpool.controlplane.apiserver.server import ServerOptions
from sandpool.model.metadata import Key
from sandpool.telemetry.reconcile_history import Entry, ReconcileHistory
from support.api.local_server import LocalServer, local_server

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
HISTORY_ROOT = "/sandpool/stories"


def a_story() -> ReconcileHistory:
    history = ReconcileHistory()
    for namespace in ("default", "other"):
        entry = Entry(MOMENT, "claim-1", "SandboxClaim", f"take {namespace}-1", "done", 0.0125)
        history.record(("claim", Key(namespace, "c")), entry)
    return history


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LocalServer]:
    async with local_server(tmp_path, options=ServerOptions(history=a_story().of)) as server:
        for namespace in ("other",):
            body = {"metadata": {"name": namespace}}
            assert (await server.request("POST", "/api/v1/namespaces", body)).status == 201
            accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
            assert (await server.request("POST", accounts, {"metadata": {"name": "default"}})).status == 201
        yield server


async def token_for(server: LocalServer, namespace: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    answer = await server.request("POST", path, {"spec": {}})
    assert answer.status == 201, answer.body
    token: str = answer.json["status"]["token"]
    return token


async def test_the_admin_reads_any_history(server: LocalServer) -> None:
    answer = await server.request("GET", f"{HISTORY_ROOT}/other/claim/c")
    assert answer.status == 200
    assert answer.json == {
        "namespace": "other",
        "controller": "claim",
        "name": "c",
        "entries": [
            {
                "when": "2026-01-02T03:04:05.000678Z",
                "seconds": 0.0125,
                "rid": "claim-1",
                "trigger": "SandboxClaim",
                "plan": "take other-1",
                "outcome": "done",
            }
        ],
    }
    assert (await server.request("GET", f"{HISTORY_ROOT}/other/claim/never")).json["entries"] == []


async def test_a_token_of_one_namespace_reads_that_one_only(server: LocalServer) -> None:
    token = await token_for(server, "other")
    mine = await server.request("GET", f"{HISTORY_ROOT}/other/claim/c", token=token)
    assert mine.json["entries"][0]["plan"] == "take other-1"
    for path in (
        f"{HISTORY_ROOT}/default/claim/c",
        f"{HISTORY_ROOT}/default/claim/never",
        f"{HISTORY_ROOT}/other/../default/claim/c",
        f"{HISTORY_ROOT}/other%2F..%2Fdefault/claim/c",
        f"{HISTORY_ROOT}//claim/c",
        f"{HISTORY_ROOT}/OTHER/claim/c",
        f"{HISTORY_ROOT}/other/claim",
        f"{HISTORY_ROOT}/other",
        HISTORY_ROOT,
    ):
        answer = await server.request("GET", path, token=token)
        assert answer.status == 403, f"{path}: {answer.status} {answer.body!r}"
        assert b"take" not in answer.body
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert (await server.request(method, f"{HISTORY_ROOT}/other/claim/c", {}, token=token)).status == 403


async def test_nobody_reads_nothing(server: LocalServer) -> None:
    assert (await server.request("GET", f"{HISTORY_ROOT}/default/claim/c", token=None)).status == 401
    assert (await server.request("GET", f"{HISTORY_ROOT}/default/claim/c", token="wrong")).status == 401


async def test_paths_that_are_no_history(server: LocalServer) -> None:
    for path in (
        f"{HISTORY_ROOT}/default/secret/c",
        f"{HISTORY_ROOT}/default/claim/c/d",
        HISTORY_ROOT,
        "/sandpool",
        "/sandpool/x",
    ):
        assert (await server.request("GET", path)).status == 404, path
    assert (await server.request("POST", f"{HISTORY_ROOT}/default/claim/c", {})).status == 404


async def test_a_user_is_told_what_it_may_read(server: LocalServer) -> None:
    token = await token_for(server, "other")
    reviews = "/apis/authorization.k8s.io/v1"
    rules = await server.request(
        "POST", f"{reviews}/selfsubjectrulesreviews", {"spec": {"namespace": "other"}}, token=token
    )
    paths = [path for rule in rules.json["status"]["nonResourceRules"] for path in rule["nonResourceURLs"]]
    assert f"{HISTORY_ROOT}/other/*" in paths
    for namespace, allowed in (("other", True), ("default", False)):
        asked = {"nonResourceAttributes": {"verb": "get", "path": f"{HISTORY_ROOT}/{namespace}/claim/c"}}
        review = await server.request("POST", f"{reviews}/selfsubjectaccessreviews", {"spec": asked}, token=token)
        assert review.json["status"]["allowed"] is allowed


async def test_a_server_without_controllers_says_so(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        answer = await server.request("GET", f"{HISTORY_ROOT}/default/claim/c")
        assert answer.status == 501
        assert "runs no controllers" in answer.json["message"]
