from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sandpool.controlplane.apiserver.discovery import aggregated, resource_list
from sandpool.controlplane.apiserver.openapi.document import LegacyOpenApi, OpenApi, group_document
from sandpool.controlplane.apiserver.request import parse_request
from sandpool.controlplane.apiserver.response import RawResponse
from sandpool.controlplane.apiserver.routes import Routes
from sandpool.kube.errors import NotAcceptable
from sandpool.model.kinds import ALL

ROUTES = Routes()
NOW = datetime(2026, 1, 1, tzinfo=UTC)
METHODS = {"get", "put", "post", "delete", "patch"}


def documents() -> Iterator[dict[str, Any]]:
    for group, version in ROUTES.groups:
        yield group_document(ROUTES, group, version)


def test_every_kind_is_discovered_in_both_shapes() -> None:
    for resource in ALL:
        plain = resource_list(ROUTES, resource.group, resource.version)["resources"]
        assert resource.plural in [entry["name"] for entry in plain]
        whole = aggregated(ROUTES, resource.group == "", "apidiscovery.k8s.io/v2")
        found = [
            entry["resource"]
            for item in whole["items"]
            if item["metadata"].get("name", "") == resource.group
            for entry in item["versions"][0]["resources"]
        ]
        assert resource.plural in found


def test_what_is_discovered_is_what_openapi_describes() -> None:
    for group, version in ROUTES.groups:
        paths = group_document(ROUTES, group, version)["paths"]
        for entry in resource_list(ROUTES, group, version)["resources"]:
            assert any(path.endswith("/" + entry["name"].replace("/", "/{name}/")) for path in paths), entry["name"]


def test_every_path_is_served() -> None:
    for document in documents():
        for path in document["paths"]:
            info = parse_request("GET", path.replace("{namespace}", "n").replace("{name}", "x"), {}, ROUTES)
            assert info.route is not None or info.review is not None or not info.plural, path


def test_references_resolve_and_operations_have_names_of_their_own() -> None:
    for document in documents():
        schemas = document["components"]["schemas"]
        for name in _references(document):
            assert name in schemas
        names = [
            operation["operationId"]
            for path in document["paths"].values()
            for method, operation in path.items()
            if method in METHODS
        ]
        assert len(names) == len(set(names))


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].removeprefix("#/components/schemas/")
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def test_path_parameters_are_declared() -> None:
    for document in documents():
        for path, item in document["paths"].items():
            declared = {parameter["name"] for parameter in item.get("parameters", ())}
            assert declared == {part[1:-1] for part in path.split("/") if part.startswith("{")}, path


def test_kubectl_finds_server_side_validation_where_it_looks() -> None:
    """In the parameters of the PATCH operation whose extension names the kind, written out, not by reference."""
    document = group_document(ROUTES, "extensions.agents.x-k8s.io", "v1beta1")
    patches = [
        path["patch"]
        for path in document["paths"].values()
        if path.get("patch", {}).get("x-kubernetes-group-version-kind", {}).get("kind") == "SandboxClaim"
    ]
    assert patches
    for patch in patches:
        assert {"fieldValidation", "dryRun"} <= {parameter["name"] for parameter in patch["parameters"]}


def header(answer: Any, name: bytes) -> bytes | None:
    assert isinstance(answer, RawResponse)
    return dict(answer.headers).get(name)


def test_documents_are_cacheable_by_their_hash() -> None:
    openapi = OpenApi(ROUTES, lambda: NOW)
    index = openapi.answer("/openapi/v3", {}, {})
    assert isinstance(index, RawResponse)
    address = msgspec.json.decode(index.body)["paths"]["api/v1"]["serverRelativeURL"]
    path, _, query = address.partition("?hash=")
    good = openapi.answer(path, {"hash": query}, {})
    assert good.status == 200
    assert header(good, b"cache-control") == b"public, immutable"
    assert header(good, b"expires") == b"Fri, 01 Jan 2027 00:00:00 GMT"
    wrong = openapi.answer(path, {"hash": "ABC"}, {})
    assert (wrong.status, header(wrong, b"location")) == (301, address.encode())
    bare = openapi.answer(path, {}, {})
    etag = header(bare, b"etag")
    assert header(bare, b"cache-control") == b"no-cache, private"
    assert openapi.answer(path, {}, {b"if-none-match": etag or b""}).status == 304
    assert openapi.answer("/openapi/v3/apis/nosuch/v1", {}, {}).status == 404
    with pytest.raises(NotAcceptable):
        openapi.answer(path, {}, {b"accept": b"application/com.github.proto-openapi.spec.v3@v1.0+protobuf"})


def test_old_kubectl_gets_a_document_that_it_can_read() -> None:
    legacy = LegacyOpenApi()
    old = legacy.page(b"application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
    assert old.body.startswith(b"\n\x032.0\x12")
    assert msgspec.json.decode(legacy.page(b"application/json").body)["swagger"] == "2.0"
    with pytest.raises(NotAcceptable):
        legacy.page(b"text/html")
