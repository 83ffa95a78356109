"""One OpenAPI v3 document per group and version, with exactly the schemas that it refers to. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sandpool.controlplane.apiserver.openapi import parameters
from sandpool.controlplane.apiserver.openapi.operations import ALWAYS, Operations, content, ref, responses
from sandpool.controlplane.apiserver.openapi.usage import usage_schemas
from sandpool.controlplane.apiserver.routes import OF_PODS, Review, Route, Routes
from sandpool.model.schemas import definitions
from sandpool.version import __version__

Json = dict[str, Any]

SCALE = "io.k8s.api.autoscaling.v1.Scale"
TOKEN_REQUEST = "io.k8s.api.authentication.v1.TokenRequest"  # noqa: S105 - a name
_PREFIX = "#/components/schemas/"
_RULES_REVIEW = "io.k8s.api.authorization.v1.SelfSubjectRulesReview"
_OWN_SCHEMAS: Json = {
    _RULES_REVIEW: {
        "description": "SelfSubjectRulesReview lists what the asking user may do in a namespace.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": ref("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
            "spec": {"type": "object", "properties": {"namespace": {"type": "string"}}},
            "status": {"type": "object"},
        },
        "x-kubernetes-group-version-kind": [
            {"group": "authorization.k8s.io", "version": "v1", "kind": "SelfSubjectRulesReview"}
        ],
    }
}


def group_document(routes: Routes, group: str, version: str) -> Json:
    paths: Json = {_root(group, version) + "/": _resources_path(group, version)}
    for route in routes.kinds.get((group, version), {}).values():
        paths |= _kind_paths(route)
    for review in routes.reviews.get((group, version), {}).values():
        paths[f"{_root(group, version)}/{review.plural}"] = {"post": _review(review)}
    return _document(f"{group or 'core'}/{version}", paths)


def _root(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _document(title: str, paths: Json) -> Json:
    return {
        "openapi": "3.0.0",
        "info": {"title": f"Sandpool: {title}", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": closure(paths),
            "securitySchemes": {"BearerToken": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"BearerToken": []}],
    }


def _resources_path(group: str, version: str) -> Json:
    found = ref("io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList")
    return {
        "get": {
            "tags": [f"{group or 'core'}_{version}"],
            "operationId": f"get{''.join(p.capitalize() for p in (group or 'core').replace('-', '.').split('.'))}{version.capitalize()}Resources",
            "description": "get available resources",
            "responses": responses({200: found}, ALWAYS),
        }
    }


def _kind_paths(route: Route) -> Json:
    if route.measured:
        return _measured_paths(route)
    resource, operations = route.resource, Operations(route.resource)
    root = _root(resource.group, resource.version)
    paths: Json = {}
    base = f"{root}/{resource.plural}"
    if resource.namespaced:
        paths[base] = {"get": operations.list_operation("list", "ForAllNamespaces")}
        base = f"{root}/namespaces/{{namespace}}/{resource.plural}"
    scoped = [parameters.NAMESPACE] if resource.namespaced else []
    paths[base] = {**operations.collection(), "parameters": scoped} if scoped else operations.collection()
    named = [parameters.NAME, *scoped]
    paths[f"{base}/{{name}}"] = {**operations.item(), "parameters": named}
    for name in route.subresources:
        paths[f"{base}/{{name}}/{name}"] = {**_subresource(operations, name), "parameters": named}
    return paths


def _measured_paths(route: Route) -> Json:
    resource, operations = route.resource, Operations(route.resource)
    base = f"{_root(resource.group, resource.version)}/{resource.plural}"
    paths: Json = {}
    scoped: list[Json] = []
    if resource.namespaced:
        paths[base] = {"get": operations.list_operation("list", "ForAllNamespaces")}
        base = f"{_root(resource.group, resource.version)}/namespaces/{{namespace}}/{resource.plural}"
        scoped = [parameters.NAMESPACE]
    paths[base] = {"get": operations.list_operation("list"), "parameters": scoped}
    reading = operations.part("", operations.object, verbs=("get",))
    paths[f"{base}/{{name}}"] = {**reading, "parameters": [parameters.NAME, *scoped]}
    return paths


def _subresource(operations: Operations, name: str) -> Json:
    if name == "status":
        return operations.part("Status", operations.object)
    if name == "scale":
        gvk = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        return operations.part("Scale", ref(SCALE), gvk)
    if name == "finalize":
        return operations.part("Finalize", operations.object, verbs=("update",))
    if name == "token":
        gvk = {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}
        return {"post": operations.action("Token", "post", ref(TOKEN_REQUEST), {201: ref(TOKEN_REQUEST)}, gvk)}
    verbs = next(sub.verbs for sub in OF_PODS if sub.name == name)
    methods = {"create": "post", "get": "get"}
    return {methods[verb]: operations.action(name.capitalize(), methods[verb], None, {}) for verb in verbs}


def _review(review: Review) -> Json:
    schema = ref(f"io.k8s.api.{review.group.split('.')[0]}.{review.version}.{review.kind}")
    return {
        "tags": [f"{review.group}_{review.version}"],
        "operationId": f"create{review.kind}",
        "description": f"create a {review.kind}",
        "parameters": list(parameters.WRITE[1:]),
        "requestBody": {"content": content(schema, "application/json", "application/yaml"), "required": True},
        "responses": responses({201: schema}, (*ALWAYS, 413, 415, 422)),
        "x-kubernetes-action": "post",
        "x-kubernetes-group-version-kind": {"group": review.group, "version": review.version, "kind": review.kind},
    }


def closure(paths: Json) -> Json:
    """Every schema that the paths refer to, directly or through others."""
    known = {**definitions(), **_OWN_SCHEMAS, **usage_schemas()}
    found: Json = {}
    waiting = list(_references(paths))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = known[name]
            waiting.extend(_references(known[name]))
    return dict(sorted(found.items()))


def _references(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            target = item.get("$ref")
            if isinstance(target, str):
                yield target.removeprefix(_PREFIX)
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
