"""Paths, methods, credentials and representations."""

from __future__ import annotations

from typing import Any

from conformance.bodies import metadata, pool, sandbox
from conformance.rest.case import (
    AGENTS,
    CORE,
    EXTENSIONS,
    LEASE,
    LEASES,
    MERGE,
    POOL,
    POOLS,
    SANDBOX,
    SANDBOXES,
    TEMPLATES,
    Case,
)


def get(name: str, path: str, show: tuple[str, ...] = (), accept: str = "") -> Case:
    headers = (("Accept", accept),) if accept else ()
    return Case(name, f"GET {path}", headers=headers, given=(SANDBOX,), show=show)


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

UNKNOWN = [
    get("path: unknown group", "/apis/bananas.example.com/v1"),
    get("path: unknown resource of an unknown group", "/apis/bananas.example.com/v1/namespaces/{ns}/bananas"),
    get("path: unknown version", "/apis/agents.x-k8s.io/v9/namespaces/{ns}/sandboxes"),
    get("path: unknown resource", AGENTS + "/namespaces/{ns}/bananas"),
    get("path: unknown object", f"{SANDBOXES}/absent"),
    get("path: unknown resource and object", AGENTS + "/namespaces/{ns}/bananas/a"),
    get("path: unknown core resource", f"{CORE}/bananas"),
    get("path: unknown core object", f"{CORE}/configmaps/absent"),
    get("path: unknown namespace", "/api/v1/namespaces/absent"),
    get("path: unknown subresource", f"{SANDBOXES}/a/banana"),
    get("path: scale of a kind without one", f"{SANDBOXES}/a/scale"),
    get("path: unknown root", "/banana"),
    get("path: singular", AGENTS + "/namespaces/{ns}/sandbox"),
    get("path: name that cannot be one", f"{SANDBOXES}/A_B"),
    get("path: trailing slash", f"{SANDBOXES}/", show=("kind",)),
    get("path: list in an unknown namespace", AGENTS + "/namespaces/absent/sandboxes", show=("kind", "items")),
    get("path: object in an unknown namespace", AGENTS + "/namespaces/absent/sandboxes/a"),
    Case("path: create in an unknown namespace", f"POST {AGENTS}/namespaces/absent/sandboxes", sandbox()),
    Case(
        "path: create core in an unknown namespace",
        "POST /api/v1/namespaces/absent/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata()},
    ),
    Case("path: create an unknown resource", f"POST {AGENTS}/namespaces/{{ns}}/bananas", sandbox()),
    Case("path: patch an unknown object", f"PATCH {SANDBOXES}/absent", {}, MERGE),
    Case("path: delete an unknown core object", f"DELETE {CORE}/configmaps/absent"),
]
METHODS = [
    Case("method: POST to an object", f"POST {SANDBOXES}/a", sandbox(), given=(SANDBOX,)),
    Case("method: PUT to a collection", f"PUT {SANDBOXES}", sandbox()),
    Case("method: PATCH to a collection", f"PATCH {SANDBOXES}", {}, MERGE),
    Case("method: POST without a namespace", f"POST {AGENTS}/sandboxes", sandbox()),
    Case("method: DELETE of all namespaces", f"DELETE {AGENTS}/sandboxes"),
    Case("method: DELETE of a status", f"DELETE {SANDBOXES}/a/status", given=(SANDBOX,)),
    Case("method: POST to a status", f"POST {SANDBOXES}/a/status", sandbox(), given=(SANDBOX,)),
    Case("method: unknown", f"BREW {SANDBOXES}"),
    Case("method: TRACE", f"TRACE {SANDBOXES}"),
    Case("method: POST to a core object", f"POST {CORE}/configmaps/a", {}),
    Case("method: PATCH to a core collection", f"PATCH {CORE}/configmaps", {}, MERGE),
    Case("method: DELETE of all namespaces, core kind", "DELETE /api/v1/configmaps"),
    Case("method: DELETE of the namespaces", "DELETE /api/v1/namespaces"),
    Case("method: HEAD", f"HEAD {SANDBOXES}"),
    Case("method: OPTIONS", f"OPTIONS {SANDBOXES}"),
]
ACCESS = [
    Case("access: no credentials", f"GET {SANDBOXES}", anonymous=True),
    Case("access: unknown token", f"GET {SANDBOXES}", headers=(("Authorization", "Bearer banana"),), anonymous=True),
    Case("access: unknown scheme", f"GET {SANDBOXES}", headers=(("Authorization", "Basic YTpi"),), anonymous=True),
    Case(
        "access: unknown token, unknown path",
        "GET /banana",
        headers=(("Authorization", "Bearer banana"),),
        anonymous=True,
    ),
    Case("access: health is open", "GET /readyz", anonymous=True),
    Case("access: version", "GET /version", anonymous=True, show=("major",)),
    Case(
        "access: whoami",
        "POST /apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
        show=("kind",),
    ),
    Case(
        "access: can-i",
        "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
        },
        show=("kind", "status.allowed"),
    ),
]
FORMS = [
    get("accept: anything", f"{SANDBOXES}/a", ("kind",), "*/*"),
    get("accept: XML", f"{SANDBOXES}/a", accept="application/xml"),
    get("accept: protobuf of a custom kind", f"{SANDBOXES}/a", accept="application/vnd.kubernetes.protobuf"),
    get(
        "accept: protobuf or JSON", f"{SANDBOXES}/a", ("kind",), "application/vnd.kubernetes.protobuf, application/json"
    ),
    get("accept: XML of a write error", f"{SANDBOXES}/absent", accept="application/xml"),
    get(
        "accept: table",
        f"{SANDBOXES}",
        (
            "kind",
            "apiVersion",
            "columnDefinitions.0.name",
            "columnDefinitions.1.name",
            "columnDefinitions.2.name",
            "columnDefinitions.3.name",
            "rows.0.cells.0",
            "rows.0.object.kind",
        ),
        TABLE,
    ),
    get("accept: table of one", f"{SANDBOXES}/a", ("kind", "rows.0.cells.0"), TABLE),
    get("accept: table without objects", f"{SANDBOXES}?includeObject=None", ("kind", "rows.0.object"), TABLE),
    get("accept: table with nonsense objects", f"{SANDBOXES}?includeObject=Banana", accept=TABLE),
    get("accept: table of an error", f"{SANDBOXES}/absent", accept=TABLE),
    get("accept: metadata only", f"{SANDBOXES}/a", ("kind", "apiVersion", "metadata.name", "spec"), PARTIAL),
    get(
        "accept: metadata only of a list",
        SANDBOXES,
        ("kind", "items.0.metadata.name", "items.0.spec", "items.0.kind"),
        PARTIALS,
    ),
    get("accept: unknown transformation", f"{SANDBOXES}/a", accept="application/json;as=Banana;v=v1;g=meta.k8s.io"),
    get("accept: table in an unknown version", f"{SANDBOXES}/a", accept="application/json;as=Table;v=v9;g=meta.k8s.io"),
    get("list: kinds", SANDBOXES, ("kind", "apiVersion", "items.0.kind", "items.0.apiVersion")),
    Case(
        "list: kinds of a core kind",
        f"GET {LEASES}",
        given=(LEASE,),
        show=("kind", "apiVersion", "items.0.kind", "items.0.apiVersion"),
    ),
    get("list: empty", TEMPLATES, ("kind", "items")),
]
DISCOVERY = [
    get("discovery: groups", "/apis", ("kind",)),
    get("discovery: core versions", "/api", ("kind", "versions")),
    get("discovery: group", "/apis/agents.x-k8s.io", ("kind", "name", "preferredVersion")),
    get("discovery: group without versions", "/apis/bananas.example.com"),
    get("discovery: resources", EXTENSIONS, ("kind", "groupVersion")),
    get("discovery: core resources", "/api/v1", ("kind", "groupVersion")),
]


def scale(replicas: Any, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": metadata(**more),
        "spec": {"replicas": replicas},
    }


SCALE = [
    Case(
        "scale: get",
        f"GET {POOLS}/a/scale",
        given=(POOL,),
        show=("kind", "apiVersion", "metadata.name", "spec", "status"),
    ),
    Case("scale: put", f"PUT {POOLS}/a/scale", scale(5, resourceVersion="{rv}"), given=(POOL,), show=("kind", "spec")),
    Case("scale: put without resourceVersion", f"PUT {POOLS}/a/scale", scale(5), given=(POOL,), show=("kind", "spec")),
    Case("scale: put stale", f"PUT {POOLS}/a/scale", scale(5, resourceVersion="1"), given=(POOL,)),
    Case("scale: put negative", f"PUT {POOLS}/a/scale", scale(-1), given=(POOL,)),
    Case("scale: put a word", f"PUT {POOLS}/a/scale", scale("many"), given=(POOL,)),
    Case("scale: put of another kind", f"PUT {POOLS}/a/scale", pool(), given=(POOL,)),
    Case("scale: put with another name", f"PUT {POOLS}/a/scale", scale(5) | {"metadata": metadata("b")}, given=(POOL,)),
    Case(
        "scale: merge patch",
        f"PATCH {POOLS}/a/scale",
        {"spec": {"replicas": 4}},
        MERGE,
        given=(POOL,),
        show=("kind", "spec"),
    ),
    Case("scale: merge patch negative", f"PATCH {POOLS}/a/scale", {"spec": {"replicas": -4}}, MERGE, given=(POOL,)),
    Case("scale: of an absent pool", f"GET {POOLS}/absent/scale"),
]

CASES = [*UNKNOWN, *METHODS, *ACCESS, *FORMS, *DISCOVERY, *SCALE]
