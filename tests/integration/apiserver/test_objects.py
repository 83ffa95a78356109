"""The verbs over a real socket with TLS: what each answers, in which form."""

from __future__ import annotations

import gzip
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sandpool.controlplane.apiserver.server import ServerOptions
from support.api.local_server import LocalServer, local_server

CORE = "/api/v1/namespaces/default"
MAPS = f"{CORE}/configmaps"
GROUP = "/apis/extensions.agents.x-k8s.io/v1beta1"
POOLS = f"{GROUP}/namespaces/default/sandboxwarmpools"
TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"}
MERGE = "application/merge-patch+json"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LocalServer]:
    async with local_server(tmp_path) as server:
        yield server


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


def pool(name: str, replicas: int = 1) -> dict[str, Any]:
    spec = {"replicas": replicas, "sandboxTemplateRef": {"name": "t"}}
    return {"apiVersion": GROUP[6:], "kind": "SandboxWarmPool", "metadata": {"name": name}, "spec": spec}


async def test_the_life_of_an_object(server: LocalServer) -> None:
    made = await server.request("POST", MAPS, config_map("a", k="v"))
    assert made.status == 201
    assert made.headers["Content-Type"] == "application/json"
    read = await server.request("GET", f"{MAPS}/a")
    assert (read.status, read.body) == (200, made.body)
    patched = await server.request("PATCH", f"{MAPS}/a", {"data": {"k": "w"}}, MERGE)
    assert (patched.status, patched.json["data"]) == (200, {"k": "w"})
    put = await server.request("PUT", f"{MAPS}/a", config_map("a", x="y"))
    assert (put.status, put.json["data"]) == (200, {"x": "y"})
    gone = await server.request("DELETE", f"{MAPS}/a")
    assert gone.status == 200
    assert gone.json["status"] == "Success"
    assert gone.json["details"] == {"name": "a", "kind": "configmaps", "uid": made.json["metadata"]["uid"]}
    assert (await server.request("GET", f"{MAPS}/a")).json["reason"] == "NotFound"


async def test_a_post_needs_no_content_type_and_may_be_yaml(server: LocalServer) -> None:
    plain = await server.request("POST", MAPS, config_map("a"), content_type=None)
    assert plain.status == 201
    yaml = await server.request("POST", MAPS, b"metadata: {name: b}\ndata: {k: v}", "application/yaml")
    assert (yaml.status, yaml.json["data"]) == (201, {"k": "v"})
    deleted = await server.request("DELETE", f"{MAPS}/a", {"preconditions": {"uid": "other"}}, content_type=None)
    assert (deleted.status, deleted.json["reason"]) == (409, "Conflict")


async def test_dry_run_stores_nothing_and_strict_refuses(server: LocalServer) -> None:
    assert (await server.request("POST", f"{MAPS}?dryRun=All", config_map("a"))).status == 201
    assert (await server.request("GET", f"{MAPS}/a")).status == 404
    odd = {"metadata": {"name": "a"}, "banana": 1}
    warned = await server.request("POST", f"{MAPS}?dryRun=All", odd)
    assert warned.headers["Warning"] == '299 - "unknown field \\"banana\\""'
    strict = await server.request("POST", f"{MAPS}?fieldValidation=Strict", odd)
    assert (strict.status, 'unknown field "banana"' in strict.json["message"]) == (400, True)
    twice = b'{"metadata":{"name":"a"},"data":{"k":"1"},"data":{"k":"2"}}'
    strict = await server.request("POST", f"{MAPS}?fieldValidation=Strict", twice)
    assert (strict.status, 'duplicate field "data"' in strict.json["message"]) == (400, True)


async def test_lists_and_pages(server: LocalServer) -> None:
    for name in ("a", "b", "c"):
        await server.request("POST", MAPS, config_map(name))
    whole = (await server.request("GET", MAPS)).json
    assert (whole["kind"], whole["apiVersion"]) == ("ConfigMapList", "v1")
    assert [item["metadata"]["name"] for item in whole["items"]] == ["a", "b", "c"]
    first = (await server.request("GET", f"{MAPS}?limit=2")).json
    assert (len(first["items"]), first["metadata"]["remainingItemCount"]) == (2, 1)
    rest = (await server.request("GET", f"{MAPS}?limit=2&continue={first['metadata']['continue']}")).json
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c"]
    assert "continue" not in rest["metadata"]
    everywhere = (await server.request("GET", "/api/v1/configmaps?fieldSelector=metadata.name%3Db")).json
    assert [item["metadata"]["name"] for item in everywhere["items"]] == ["b"]


async def test_long_lists_come_in_pieces_and_packed_if_asked(server: LocalServer) -> None:
    for index in range(40):
        await server.request("POST", MAPS, config_map(f"m{index:02}", k="x" * 20_000))
    plain = await server.request("GET", MAPS, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    assert "Content-Length" not in plain.headers
    packed = await server.request("GET", MAPS, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(packed.body) < len(plain.body) / 10
    assert gzip.decompress(packed.body) == plain.body
    assert len(plain.json["items"]) == 40
    table = await server.request("GET", f"{MAPS}?includeObject=Object", headers=TABLE | {"Accept-Encoding": "identity"})
    assert [row["cells"][0] for row in table.json["rows"]] == [f"m{index:02}" for index in range(40)]


async def test_deleting_a_collection(server: LocalServer) -> None:
    for name in ("a", "b"):
        await server.request("POST", MAPS, {"metadata": {"name": name, "labels": {"l": name}}})
    gone = await server.request("DELETE", f"{MAPS}?labelSelector=l%3Da")
    assert (gone.status, [item["metadata"]["name"] for item in gone.json["items"]]) == (200, ["a"])
    assert len((await server.request("GET", MAPS)).json["items"]) == 1


async def test_forms(server: LocalServer) -> None:
    await server.request("POST", POOLS, pool("p", 3))
    table = (await server.request("GET", f"{POOLS}/p", headers=TABLE)).json
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]][:3] == ["Name", "Ready", "Desired"]
    assert table["rows"][0]["cells"][:3] == ["p", None, 3]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    partial = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    listed = (await server.request("GET", POOLS, headers=partial)).json
    assert listed["kind"] == "PartialObjectMetadataList"
    assert set(listed["items"][0]) == {"kind", "apiVersion", "metadata"}
    pretty = await server.request("GET", f"{POOLS}/p?pretty=true")
    assert b'\n  "kind": "SandboxWarmPool"' in pretty.body
    for refused in ("text/html", "application/vnd.kubernetes.protobuf"):
        assert (await server.request("GET", POOLS, headers={"Accept": refused})).json["reason"] == "NotAcceptable"


async def test_scale(server: LocalServer) -> None:
    await server.request("POST", POOLS, pool("p", 3))
    scale = (await server.request("GET", f"{POOLS}/p/scale")).json
    assert (scale["kind"], scale["spec"], scale["status"]) == ("Scale", {"replicas": 3}, {"replicas": 0})
    patched = await server.request("PATCH", f"{POOLS}/p/scale", {"spec": {"replicas": 5}}, MERGE)
    assert (patched.status, patched.json["kind"], patched.json["spec"]) == (200, "Scale", {"replicas": 5})
    put = await server.request("PUT", f"{POOLS}/p/scale", {"metadata": {"name": "p"}, "spec": {"replicas": 7}})
    assert (put.status, put.json["spec"]) == (200, {"replicas": 7})
    assert (await server.request("GET", f"{POOLS}/p")).json["spec"]["replicas"] == 7


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("POST", f"{MAPS}/a", 405, "MethodNotAllowed"),
        ("PATCH", MAPS, 405, "MethodNotAllowed"),
        ("POST", "/api/v1/configmaps", 405, "MethodNotAllowed"),
        ("DELETE", "/api/v1/configmaps", 405, "MethodNotAllowed"),
        ("DELETE", "/api/v1/namespaces", 405, "MethodNotAllowed"),
        ("GET", f"{CORE}/serviceaccounts/default/token", 405, "MethodNotAllowed"),
        ("OPTIONS", MAPS, 405, "MethodNotAllowed"),
        ("GET", "/api/v1/nosuch", 404, "NotFound"),
        ("GET", "/api/v1/pods/x", 404, "NotFound"),
        ("GET", f"{MAPS}/a/banana", 404, "NotFound"),
        ("GET", f"{CORE}/pods/x/log", 404, "NotFound"),
    ],
)
async def test_what_cannot_be_done(server: LocalServer, method: str, path: str, status: int, reason: str) -> None:
    answer = await server.request(method, path, {})
    assert (answer.status, answer.json["reason"], answer.json["kind"]) == (status, reason, "Status")


async def test_where_nothing_is(server: LocalServer) -> None:
    for path in ("/nosuch", "/apis/apps/v1/deployments", "/apis/apps/v1", "/"):
        answer = await server.request("GET", path)
        assert (answer.status, answer.body) == (404, b"404 page not found\n"), path


async def test_pods_are_stored_but_not_run(server: LocalServer) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await server.request("POST", f"{CORE}/pods", body)
    for method, part in (("GET", "log"), ("POST", "exec"), ("GET", "portforward")):
        answer = await server.request(method, f"{CORE}/pods/p/{part}", {} if method == "POST" else None)
        assert (answer.status, answer.json["reason"]) == (501, "NotImplemented")
        assert f'cannot serve "{part}"' in answer.json["message"]


async def test_bodies_beyond_the_limit(server: LocalServer) -> None:
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    declared = io.BytesIO(b"x" * (3 * 1024 * 1024 + 1))
    async with server.session.post(server.url + MAPS, data=declared, headers=headers) as response:
        assert response.status == 413
        assert (await response.json())["message"] == "Request entity too large: limit is 3145728"

    async def dribble() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 65536

    async with server.session.post(server.url + MAPS, data=dribble(), headers=headers) as response:
        assert response.status == 413  # no length was declared, so it is found out while reading
    assert (await server.request("GET", MAPS)).status == 200


async def test_hostile_json(server: LocalServer) -> None:
    for body in (b"[" * 40_000, b'{"a":' * 5000 + b"1" + b"}" * 5000, b'{"metadata":{"name":"\\ud800"}}'):
        answer = await server.request("POST", MAPS, body)
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
    answer = await server.request("POST", MAPS, b"[" * 200_000)
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")


async def test_discovery_health_and_version(server: LocalServer) -> None:
    version = (await server.request("GET", "/version", token=None)).json
    assert (version["major"], version["minor"]) == ("1", "36")
    assert version["gitVersion"].startswith("v1.36.0+sandpool.")
    for path in ("/healthz", "/livez", "/readyz", "/readyz/ping"):
        assert (await server.request("GET", path, token=None)).body == b"ok"
    verbose = await server.request("GET", "/readyz?verbose", token=None)
    assert verbose.body.decode().splitlines()[0] == "[+]ping ok"
    assert (await server.request("GET", "/readyz/nosuch", token=None)).status == 404
    plain = (await server.request("GET", "/apis")).json
    assert "agents.x-k8s.io" in [group["name"] for group in plain["groups"]]
    packed = await server.request("GET", "/openapi/v3/api/v1", headers={"Accept-Encoding": "gzip"})
    assert msgspec.json.decode(gzip.decompress(packed.body))["openapi"] == "3.0.0"
    metrics = await server.request("GET", "/metrics")
    assert b'sandpool_apiserver_requests_total{code="200",resource="",verb="get"}' in metrics.body


async def test_a_cluster_that_cannot_write_is_not_ready(tmp_path: Path) -> None:
    async with local_server(tmp_path, options=ServerOptions(checks={"store": lambda: False})) as server:
        answer = await server.request("GET", "/readyz", token=None)
        assert (answer.status, b"[-]store failed" in answer.body) == (500, True)
        assert (await server.request("GET", "/livez", token=None)).status == 200


async def test_protobuf_bodies_of_newer_kubectl(server: LocalServer) -> None:
    recorded = bytes.fromhex(
        "6b38730 00a0f0a02763112094e616d657370616365121a0a120a027a7a12001a0022002a00320038004200 12001a020a001a002200".replace(
            " ", ""
        )
    )
    made = await server.request("POST", "/api/v1/namespaces", recorded, "application/vnd.kubernetes.protobuf")
    assert (made.status, made.json["metadata"]["name"]) == (201, "zz")
    cut = await server.request("POST", "/api/v1/namespaces", recorded[:30], "application/vnd.kubernetes.protobuf")
    assert (cut.status, cut.json["reason"]) == (400, "BadRequest")
